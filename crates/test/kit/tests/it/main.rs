//! The integration tests of `forerun-testkit` as one program, because linking takes longer than
//! most tests.
#![allow(clippy::as_conversions, clippy::panic, clippy::unwrap_used)]

mod exfat_judge;
mod guest_exfat;
mod guest_romfs;
mod self_check;
