//! The integration tests of `forerun-vfs`: one program, because linking takes longer than most tests.
#![allow(clippy::as_conversions, clippy::panic, clippy::unwrap_used)]

mod paths_and_walks;
