//! The zip driver against libarchive and Python's zipfile, on archives made by hand, and on archives that lie.
#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions)]

mod common;
mod describe;
mod hostile;
mod large;
mod oracles;
mod rules;
