//! The integration tests of `xtask`: one program, because linking takes longer than most tests.
#![allow(clippy::unwrap_used)]

mod report;
