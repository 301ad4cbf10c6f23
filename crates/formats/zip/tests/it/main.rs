//! The zip driver against libarchive and Python's zipfile, and on hand-made and hostile archives.
#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions)]

mod common;
mod describe;
mod hostile;
mod large;
mod oracles;
mod rules;
