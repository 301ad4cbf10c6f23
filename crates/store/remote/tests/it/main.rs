//! The integration tests of `forerun-remote` as one program, because linking takes longer than most
//! tests.
#![allow(
    clippy::as_conversions,
    clippy::panic,
    clippy::print_stdout,
    clippy::single_range_in_vec_init,
    clippy::unwrap_used
)]

mod faults;
mod network_gone;
mod nginx;
mod offline;
mod registry;
mod s3;
mod scheduling;
mod support;
mod unmeasured;
mod whole;
