//! The integration tests of `forerun-fuse`: one program, because linking takes longer than most tests.
#![allow(
    clippy::as_conversions,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used
)]

mod common;
mod composefs;
mod exfat;
mod exfat_devices;
mod exfat_loop;
mod exfat_posix;
mod failures;
mod followed;
mod lifecycle;
mod process;
mod protocol;
mod scattered;
mod storm;
mod tree;
mod volume;
mod waiting;

use std::sync::RwLock;

/// The storm holds this for writing, the tests of `waiting` for reading: they have limits of time, and
/// the processes of the storm take all CPUs.
static CPUS: RwLock<()> = RwLock::new(());
