//! Integration tests of `forerun-fuse`, in one program to link only once.
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
mod handles;
mod lifecycle;
mod process;
mod protocol;
mod scattered;
mod storm;
mod tree;
mod volume;
mod waiting;

use std::sync::RwLock;

/// The storm holds this for writing, the tests in `waiting` for reading: they have timeouts, and
/// the storm's processes use all CPUs.
static CPUS: RwLock<()> = RwLock::new(());
