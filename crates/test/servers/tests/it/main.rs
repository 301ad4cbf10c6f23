//! The integration tests of `forerun-testkit-servers`: one program, because linking takes longer than most tests.
#![allow(clippy::panic, clippy::unwrap_used)]

mod servers;
