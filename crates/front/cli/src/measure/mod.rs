//! Measurements, for `forerun bench` and `forerun demo`.
//!
//! Empties caches, mounts an image with forerun and other drivers, starts processes that do the
//! workloads, alternates between the drivers, and compares the results. It prints nothing.

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

/// Errors of measurements are only printed.
pub use anyhow::{Error, Result};
