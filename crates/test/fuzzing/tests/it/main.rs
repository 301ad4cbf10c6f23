//! The integration tests of `forerun-fuzzing` as one program, because linking takes longer than
//! most tests.
#![allow(clippy::panic, clippy::unwrap_used)]

mod targets;
