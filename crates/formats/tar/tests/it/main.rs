//! The tar driver against GNU tar and Python's tarfile, on constructed archives, and on hostile
//! archives.
#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions)]

mod bsdtar;
mod common;
mod compressed;
mod describe;
mod hostile;
mod oracles;
mod rules;
mod soci;
mod tables;
