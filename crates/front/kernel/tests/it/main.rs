//! The integration tests of `forerun-kernel`: one program, because linking takes longer than most tests.
#![allow(clippy::as_conversions, clippy::panic, clippy::unwrap_used)]

mod common;
mod erofs;
mod on_demand;
mod on_demand_support;
mod on_demand_whole;
mod others;
