//! The integration tests of `forerun-export`: one program, because linking takes longer than most tests.
#![allow(clippy::as_conversions, clippy::panic, clippy::unwrap_used)]

mod amounts;
mod archives;
mod attributes;
mod checking;
mod common;
mod comparing;
mod extracting;
mod resuming;
mod spreading;
