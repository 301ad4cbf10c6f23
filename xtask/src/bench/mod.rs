//! Measurements: wall time and counted requests, for people; nothing fails by them.

mod comparison;
mod erofs;
mod exfat;
mod generated;
mod host;
mod inputs;
mod metadata;
mod ondemand;
mod program;
mod report;
mod romfs;
mod squashfs;
mod table;
mod tree;
mod work;

use std::path::Path;

pub use host::Host;
pub use program::program_in;

use anyhow::Result;
use clap::Subcommand;
use forerun_measure::work::{self as pieces, Work};

/// The benches.
#[derive(Subcommand)]
pub enum Bench {
    /// A large file in a romfs image against the image itself, and a walk over many files
    Romfs(romfs::RomfsOptions),
    /// Reading, listing, extracting and packing SquashFS against the kernel driver, squashfuse_ll,
    /// unsquashfs and mksquashfs
    Squashfs(squashfs::SquashfsOptions),
    /// Reading, listing, extracting and packing EROFS and composefs against the kernel's drivers,
    /// erofsfuse, fsck.erofs and mkfs.erofs
    Erofs(erofs::ErofsOptions),
    /// Changing exFAT volumes against exfat-fuse, and what reaches the device
    Exfat(exfat::ExfatOptions),
    /// Images at servers: once they are here against local files, and while they come against the
    /// link
    Ondemand(ondemand::OndemandOptions),
    /// Listing a tree, uncached and cached, in all ways that EROFS and composefs images are read
    Metadata(metadata::MetadataOptions),
    /// The work of the measured processes: not for people
    #[command(hide = true)]
    Work {
        /// The work
        #[command(subcommand)]
        work: Work,
    },
}

/// Measures and prints.
pub fn run(root: &Path, what: &Bench) -> Result<()> {
    match what {
        Bench::Romfs(options) => romfs::run(root, options),
        Bench::Squashfs(options) => squashfs::run(root, options),
        Bench::Erofs(options) => erofs::run(root, options),
        Bench::Exfat(options) => exfat::run(root, options),
        Bench::Ondemand(options) => ondemand::run(root, options),
        Bench::Metadata(options) => metadata::run(root, options),
        Bench::Work { work } => {
            println!("{}", pieces::run(work)?);
            Ok(())
        }
    }
}
