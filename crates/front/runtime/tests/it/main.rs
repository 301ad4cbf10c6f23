//! The integration tests of `forerun-runtime`: one program, because linking takes longer than most tests.
//!
//! Each makes AppImages of the runtime that cargo has built and of images by mksquashfs.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod common;
mod extracting;
mod hostile;
mod lifecycle;
mod packing;
mod running;
