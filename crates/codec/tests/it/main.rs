//! The integration tests of `forerun-codec`: one program, because linking takes longer than most tests.
#![allow(clippy::as_conversions, clippy::panic, clippy::unwrap_used)]

mod codecs;
mod fill;
mod prefixes;
