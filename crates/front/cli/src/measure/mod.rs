//! Measurements, for `forerun bench` and `forerun demo`.
//!
//! Empties caches, mounts an image by forerun and by other drivers, has processes do pieces of work,
//! takes turns between the drivers, and compares what came out. It prints nothing and knows no table.

pub mod active;
pub mod machine;
pub mod mount;
pub mod noise;
pub mod peers;
pub mod process;
pub mod run;
pub mod statistics;
pub mod turns;
pub mod work;

/// The errors of measurements, which are only printed.
pub use anyhow::{Error, Result};
