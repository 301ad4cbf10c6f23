//! Measurements: wall time and counted requests, for people; nothing fails by them.

mod caches;
mod inputs;
mod mount;
mod report;
mod romfs;
mod squashfs;

use std::path::Path;

use anyhow::Result;
use clap::Subcommand;

/// What to measure.
#[derive(Subcommand)]
pub enum Bench {
    /// A large file in a romfs image against the image itself, and a walk over many files
    Romfs(romfs::Options),
    /// Reading, listing, extracting and packing SquashFS against the kernel driver, squashfuse_ll,
    /// unsquashfs and mksquashfs
    Squashfs(squashfs::Options),
    /// What the measured processes do: not for people
    #[command(hide = true)]
    Work {
        /// What to do
        #[command(subcommand)]
        work: squashfs::Work,
    },
}

/// Measures and prints.
pub fn run(root: &Path, what: &Bench) -> Result<()> {
    match what {
        Bench::Romfs(options) => romfs::run(root, options),
        Bench::Squashfs(options) => squashfs::run(root, options),
        Bench::Work { work } => squashfs::work(work),
    }
}
