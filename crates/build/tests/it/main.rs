//! The integration tests of `forerun-build`: one program, because linking takes longer than most tests.
#![allow(clippy::as_conversions, clippy::panic, clippy::unwrap_used)]

mod manifests;
mod parallel;
mod scanning;
