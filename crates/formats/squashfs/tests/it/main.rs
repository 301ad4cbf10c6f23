//! The integration tests of `forerun-squashfs`: one program, because linking takes longer than most tests.
#![allow(
    clippy::as_conversions,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used
)]

mod big_endian;
mod common;
mod describe;
mod hostile;
mod kept;
mod legacy;
mod lookups;
mod reading;
mod salvage;
mod turned;
mod writer;
mod writer_common;
mod writer_matrix;
mod writer_oracles;
