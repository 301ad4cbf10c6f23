//! The integration tests of `forerun-pictures`.
#![allow(clippy::panic, clippy::unwrap_used)]

mod map;
mod trace;
