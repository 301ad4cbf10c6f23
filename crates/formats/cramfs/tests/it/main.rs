//! The cramfs driver against mkfs.cramfs and fsck.cramfs, on images made by hand, and on images that lie.
#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions)]

mod bounds;
mod common;
mod describe;
mod hostile;
mod made;
mod reading;
