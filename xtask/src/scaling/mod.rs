//! How cost grows: with the length of files, the number of entries, readers, mounts and nodes, and with
//! the latency of a link.
//!
//! Each series has one cost at some sizes, and the exponent of the power of the size that fits it. Cost
//! is CPU time, memory, requests or bytes where it can be: those are nearly the same on a busy machine.
//! A series that grows faster than its limit is marked, and the command fails.

mod chart;
mod cost;
mod figures;
mod files;
mod fit;
mod latency;
mod mounts;
mod nodes;
mod readers;
mod series;
mod trees;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::bench::{Host, program_in};
use crate::process;
pub use figures::blocks;
use series::ScalingSeries;

/// Where images are made by default.
const DIR: &str = "/var/tmp/forerun-scaling";

/// How to measure.
#[derive(clap::Args)]
pub struct ScalingOptions {
    /// Measure only these, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// Measure this program and not the tree as it is installed
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// A disk with 10 GB to spare; removed at the end
    #[arg(long, default_value = DIR)]
    dir: PathBuf,
    /// Go on to files of 100 GB, trees of 5 million entries and 1,000 mounts; takes half an hour and 4 GB
    /// of memory
    #[arg(long)]
    large: bool,
    /// Keep the figures in docs/figures, with charts and the tables of docs/scaling.md
    #[arg(long)]
    update: bool,
}

/// The size with which the cost grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The length of a file: 1 MB to 10 GB
    Files,
    /// The entries of a tree: a thousand to a million
    Trees,
    /// Processes that read one mount: 1 to 64
    Readers,
    /// The round trip of the link to the server: 0.1 to 200 ms
    Latency,
    /// Mounts on one machine: 1 to 100
    Mounts,
    /// Machines that start from one server: 1 to 16
    Nodes,
}

/// The circumstances of all measurements.
struct Lab {
    dir: PathBuf,
    forerun: PathBuf,
    is_large: bool,
}

impl Lab {
    /// Returns the sizes up to the largest that is measured.
    fn sizes<'a>(&self, usual: &'a [u64], large: &'a [u64]) -> Vec<u64> {
        let more = if self.is_large { large } else { &[] };
        usual.iter().chain(more).copied().collect()
    }

    /// Makes the image of a directory, which is removed then.
    fn pack(&self, source: &Path, image: &Path, options: &[&str]) -> Result<()> {
        let mut pack = Command::new(&self.forerun);
        pack.args(["pack", "--quiet", "--force"]).args(options);
        process::run(pack.arg(source).arg(image))?;
        fs::remove_dir_all(source).with_context(|| source.display().to_string())
    }
}

impl Part {
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_string())
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Files => "Length of a file",
            Self::Trees => "Entries of a tree",
            Self::Readers => "Processes that read one mount",
            Self::Latency => "Round trip of the link",
            Self::Mounts => "Mounts on one machine",
            Self::Nodes => "Machines that start from one server",
        }
    }

    fn measure(self, lab: &Lab) -> Result<Vec<ScalingSeries>> {
        match self {
            Self::Files => files::measure(lab),
            Self::Trees => trees::measure(lab),
            Self::Readers => readers::measure(lab),
            Self::Latency => latency::measure(lab),
            Self::Mounts => mounts::measure(lab),
            Self::Nodes => nodes::measure(lab),
        }
    }
}

/// Measures and prints. Fails where a cost grows faster than it may.
pub fn run(root: &Path, options: &ScalingOptions) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "needs root: caches are dropped before each measurement"
    );
    let lab = Lab {
        forerun: program_in(root, &options.dir, options.program.as_deref())?,
        dir: options.dir.clone(),
        is_large: options.large,
    };
    let parts = match options.only.as_slice() {
        [] => Part::value_variants(),
        only => only,
    };
    let mut too_steep = Vec::new();
    for part in parts {
        eprintln!("measuring: {}", part.title());
        let series = part.measure(&lab).with_context(|| part.title())?;
        println!("\n## {}\n", part.title());
        print!("{}", series::table(&series));
        let steep = series.iter().filter(|series| !series.is_met());
        too_steep.extend(steep.map(|series| format!("{}: {}", part.title(), series.what)));
        if options.update {
            let host = Host::look(&lab.forerun, &[], &[]).json();
            figures::keep(root, &part.name(), &host, &series)?;
        }
    }
    fs::remove_dir_all(&lab.dir).with_context(|| lab.dir.display().to_string())?;
    ensure!(
        too_steep.is_empty(),
        "grows faster than it may: {}",
        too_steep.join("; ")
    );
    Ok(())
}
