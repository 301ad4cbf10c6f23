//! Integration tests of `forerun-runtime`, in one program to link only once.
//!
//! They build AppImages from the compiled runtime and images made by mksquashfs.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod common;
mod extracting;
mod hostile;
mod lifecycle;
mod packing;
mod running;
