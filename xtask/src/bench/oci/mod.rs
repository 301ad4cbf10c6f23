//! Container images: the time to the first command against a full pull, an archive at random places against ratarmount,
//! merged layers against the kernel's overlayfs, a conversion against unpacking and packing, and a container through our
//! snapshotter against containerd's own.
//!
//! A registry on this machine has the images, and a proxy before it plays a link of 3 MB/s and 20 ms, or of 100 MB/s to a
//! cluster. The full pull is only the copy of the layers by skopeo: to unpack them would take more time.

mod containers;
mod images;
mod inputs;
mod measure;
mod rows;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::comparison::{all_names, or_all, rounds};
use super::host::Host;
use super::outcome::BenchOutcome;
use super::table::Report;
use inputs::OciInputs;
use rows::OciRow;

/// Where images are kept by default.
const DIR: &str = "/var/tmp/forerun-bench-oci";
/// The programs.
const PROGRAMS: &[(&str, &str)] = &[
    ("skopeo", "--version"),
    ("umoci", "--version"),
    ("mksquashfs", "-version"),
    ("ratarmount", "--version"),
    ("docker-registry", "--version"),
    ("containerd", "--version"),
    ("runc", "--version"),
];

/// How to measure.
#[derive(clap::Args)]
pub struct OciOptions {
    /// Rounds; medians are reported
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure this program and not the tree as it is installed
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Print JSON and no table
    #[arg(long)]
    json: bool,
    /// Where images are kept between runs: a disk with 12 GB to spare, not memory
    #[arg(long, default_value = DIR)]
    dir: PathBuf,
    /// Measure only these, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ROWS")]
    rows: Vec<OciRow>,
    /// Length of the files of the image that is pulled, in MB
    #[arg(long, default_value_t = 350, value_name = "MB", value_parser = clap::value_parser!(u64).range(50..=1000))]
    image: u64,
    /// Length of the file in the archive that is read at random places, in MB
    #[arg(long, default_value_t = 2000, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..))]
    archive: u64,
}

impl OciOptions {
    /// Returns whether to print JSON.
    pub const fn json(&self) -> bool {
        self.json
    }
}

/// Returns the names of the rows.
pub fn row_names() -> Vec<String> {
    all_names::<OciRow>()
}

/// Measures. A run that fails is a part of the outcome, so that the others are not lost.
pub fn run(root: &Path, options: &OciOptions) -> Result<BenchOutcome> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "needs root: mounts of root are measured, overlayfs is mounted, and all caches dropped"
    );
    let rows = or_all(&options.rows);
    let inputs = OciInputs::prepare(root, options, rows)?;
    let host = Host::look(&inputs.forerun, &[], PROGRAMS);
    let missing = |row, contender| measure::missing(row, contender);
    let measure = |row, contender| measure::measure(&inputs, row, contender);
    let series = rounds(rows, options.rounds, missing, measure);
    Ok(Report {
        host,
        tree: inputs.text(),
        about: format!("link: {}", inputs::LINK_TEXT),
        remarks: inputs.remarks(),
        facts: inputs.facts(),
        series,
    }
    .outcome())
}
