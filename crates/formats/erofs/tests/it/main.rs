//! The integration tests of `forerun-erofs`: one program, because linking takes longer than most tests.
#![allow(
    clippy::as_conversions,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used
)]

mod common;
mod compressed;
mod compressed_golden;
mod describe;
mod golden;
mod hostile;
mod hostile_fragments;
mod large_blocks;
mod later_features;
mod reading;
mod writer;
mod writer_common;
mod writer_matrix;
mod writer_oracles;
