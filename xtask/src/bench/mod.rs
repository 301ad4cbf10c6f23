//! Measurements: wall time and counted requests, for people; nothing fails by them.

mod inputs;
mod mount;
mod report;
mod romfs;

use std::path::Path;

use anyhow::Result;
use clap::Subcommand;

/// What to measure.
#[derive(Subcommand)]
pub enum Bench {
    /// A large file in a romfs image against the image itself, and a walk over many files
    Romfs(romfs::Options),
}

/// Measures and prints.
pub fn run(root: &Path, what: &Bench) -> Result<()> {
    match what {
        Bench::Romfs(options) => romfs::run(root, options),
    }
}
