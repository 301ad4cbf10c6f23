//! The integration tests of `forerun-exfat`: one program, because linking takes longer than most tests.
#![allow(
    clippy::as_conversions,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used
)]

mod changing;
mod common;
mod describe;
mod failures;
mod field;
mod forgetting;
mod fuzz_entries;
mod geometries;
mod hostile;
mod model;
mod other_driver;
mod powercut;
mod repair;
mod repair_powercut;
mod repair_random;
mod repairing;
mod requests;
mod writer;
mod writer_matrix;
