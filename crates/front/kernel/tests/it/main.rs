//! The integration tests of `forerun-kernel`: one program, because linking takes longer than most tests.
#![allow(clippy::as_conversions, clippy::panic, clippy::unwrap_used)]

mod common;
mod erofs;
mod others;
