//! The cramfs driver against mkfs.cramfs and fsck.cramfs, and on hand-made and hostile images.
#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions)]

mod bounds;
mod common;
mod describe;
mod hostile;
mod made;
mod reading;
