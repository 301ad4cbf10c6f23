//! The integration tests of `forerun-cache`: one program, because linking takes longer than most tests.
#![allow(
    clippy::as_conversions,
    clippy::panic,
    clippy::single_range_in_vec_init,
    clippy::unwrap_used
)]

mod altered;
mod blob;
mod common;
mod crash;
mod eviction;
mod full;
mod powercut;
mod processes;
mod table;
