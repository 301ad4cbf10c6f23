//! The integration tests of `forerun`: one program, because linking takes longer than most tests.
#![allow(clippy::as_conversions, clippy::panic, clippy::unwrap_used)]

mod erofs;
mod examples;
mod files;
mod from_image;
mod layers;
mod metadata;
mod names;
mod open;
mod packing;
mod paths;
mod payload;
mod scan;
mod sif;
mod squashfs;
mod walks;
