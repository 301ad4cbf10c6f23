//! Measurements: one library for `forerun bench` and for the benches of `cargo xtask`.
//!
//! It empties caches, mounts an image by forerun and by other drivers, has processes do pieces of work,
//! takes turns between the drivers, and compares what came out. It prints nothing and knows no
//! table: its callers do.

pub mod active;
pub mod caches;
pub mod counters;
pub mod digest;
pub mod machine;
mod memory;
pub mod mount;
pub mod noise;
pub mod peers;
pub mod process;
pub mod programs;
mod reports;
pub mod run;
pub mod samples;
pub mod scratch;
pub mod statistics;
pub mod timer;
pub mod turns;
pub mod work;

/// The errors of measurements, which are only printed.
pub use anyhow::{Error, Result};
