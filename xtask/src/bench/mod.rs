//! Measurements: wall time and counted requests, for people; nothing fails by them.

mod by_hand;
mod comparison;
mod decoded;
mod erofs;
mod exfat;
mod from_memory;
mod generated;
mod host;
mod inputs;
mod metadata;
mod oci;
mod ondemand;
mod outcome;
mod program;
mod record;
mod report;
mod romfs;
mod squashfs;
mod table;
mod tree;
mod work;

use std::path::Path;

pub use host::Host;
pub use outcome::BenchOutcome;
pub use program::program_in;
#[cfg(test)]
pub use record::Measured;
pub use record::{Against, BenchRecord, NOISE, Ratio};

use anyhow::{Context, Result, bail};
use clap::{Parser as _, Subcommand};
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
    /// Container images: the first command against a full pull, layers against overlayfs, archives
    /// against ratarmount, conversion against umoci and mksquashfs
    Oci(oci::OciOptions),
    /// Shows that `forerun bench` is right: does its work on five images again by a shell, and compares the ratios
    ByHand(by_hand::ByHandOptions),
    /// The work of the measured processes: not for people
    #[command(hide = true)]
    Work {
        /// The work
        #[command(subcommand)]
        work: Work,
    },
}

/// The names of the benches, in the order in which a report runs them.
pub const BENCHES: [&str; 7] = [
    "romfs", "squashfs", "erofs", "exfat", "ondemand", "metadata", "oci",
];

/// A command line of a bench.
#[derive(clap::Parser)]
#[command(no_binary_name = true)]
struct BenchLine {
    #[command(subcommand)]
    bench: Bench,
}

impl Bench {
    /// Parses a command line, of which the first word is the name of the bench.
    pub fn parse(words: &[String]) -> Result<Self> {
        let line = BenchLine::try_parse_from(words).with_context(|| words.join(" "))?;
        Ok(line.bench)
    }

    const fn json(&self) -> bool {
        match self {
            Self::Romfs(options) => options.json(),
            Self::Squashfs(options) => options.json(),
            Self::Erofs(options) => options.json(),
            Self::Exfat(options) => options.json(),
            Self::Ondemand(options) => options.json(),
            Self::Metadata(options) => options.json(),
            Self::Oci(options) => options.json(),
            Self::ByHand(_) | Self::Work { .. } => false,
        }
    }
}

/// Returns the names of the rows of a bench; none for one that is run as a whole.
pub fn rows_of(bench: &str) -> Vec<String> {
    match bench {
        "squashfs" => squashfs::row_names(),
        "erofs" => erofs::row_names(),
        "exfat" => exfat::row_names(),
        "ondemand" => ondemand::row_names(),
        "oci" => oci::row_names(),
        _ => Vec::new(),
    }
}

/// Measures and prints. Fails at the end where a run did, so that the others are not lost.
pub fn run(root: &Path, what: &Bench) -> Result<()> {
    if let Bench::Work { work } = what {
        println!("{}", pieces::run(work)?);
        return Ok(());
    }
    if let Bench::ByHand(options) = what {
        options.check()?;
        return by_hand::run(root, options);
    }
    let outcome = measure(root, what)?;
    outcome.print(what.json())?;
    outcome.verdict()
}

/// Measures. A run that fails is a part of the outcome.
pub fn measure(root: &Path, what: &Bench) -> Result<BenchOutcome> {
    match what {
        Bench::Romfs(options) => romfs::run(root, options),
        Bench::Squashfs(options) => squashfs::run(root, options),
        Bench::Erofs(options) => erofs::run(root, options),
        Bench::Exfat(options) => exfat::run(root, options),
        Bench::Ondemand(options) => ondemand::run(root, options),
        Bench::Metadata(options) => metadata::run(root, options),
        Bench::Oci(options) => oci::run(root, options),
        Bench::ByHand(_) | Bench::Work { .. } => bail!("is no bench"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bench_and_row_can_be_named() {
        for bench in BENCHES {
            let mut words = vec![bench.to_string()];
            let rows = rows_of(bench);
            if !rows.is_empty() {
                words.extend(["--rows".to_string(), rows.join(",")]);
            }
            assert!(Bench::parse(&words).is_ok(), "{words:?}");
        }
        assert!(Bench::parse(&["nothing".to_string()]).is_err());
        assert!(Bench::parse(&["romfs".to_string(), "--rows".to_string()]).is_err());
    }
}
