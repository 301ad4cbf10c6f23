//! The integration tests of `forerun-composefs`: one program, because linking takes longer than most tests.
#![allow(clippy::as_conversions, clippy::panic, clippy::unwrap_used)]

mod collecting;
mod common;
mod describe;
mod digests;
mod hostile;
mod kernel;
mod reading;
mod writer_matrix;
