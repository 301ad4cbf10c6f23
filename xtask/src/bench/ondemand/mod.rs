//! Images at servers, read on demand: compared with local files once they are here, and with the link
//! while they are fetched.
//!
//! A web server on this machine has the images. While they are fetched, a proxy before the server plays a
//! link of 100 MB/s and 20 ms. Both take CPU time of this machine, as a kernel's network stack would.

mod inputs;
pub mod interpreter;
mod measure;
mod nydus;
mod remote;
mod rows;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::comparison::{all_names, or_all, rounds};
use super::host::Host;
use super::outcome::BenchOutcome;
use super::table::Report;
use inputs::OndemandInputs;
use rows::OndemandRow;

/// Where images are kept by default.
const DIR: &str = "/var/tmp/forerun-bench-ondemand";
/// The programs.
const PROGRAMS: &[(&str, &str)] = &[
    ("fio", "--version"),
    ("bindfs", "--version"),
    ("nydusd", "--version"),
    ("nginx", "-v"),
    ("docker-registry", "--version"),
];

/// How to measure.
#[derive(clap::Args)]
pub struct OndemandOptions {
    /// Rounds; medians are reported
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure this program and not the tree as it is installed
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Print JSON and no table
    #[arg(long)]
    json: bool,
    /// Where images are kept between runs: a disk with 7 GB to spare, not memory
    #[arg(long, default_value = DIR)]
    dir: PathBuf,
    /// Measure only these, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ROWS")]
    rows: Vec<OndemandRow>,
    /// Length of the file that is read when it is here, in MB
    #[arg(long, default_value_t = 2000, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..))]
    local: u64,
    /// Length of the file that is read while it comes, in MB
    #[arg(long, default_value_t = 500, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..))]
    coming: u64,
}

impl OndemandOptions {
    /// Returns whether to print JSON.
    pub const fn json(&self) -> bool {
        self.json
    }
}

/// Returns the names of the rows.
pub fn row_names() -> Vec<String> {
    all_names::<OndemandRow>()
}

/// Measures. A run that fails is a part of the outcome, so that the others are not lost.
pub fn run(root: &Path, options: &OndemandOptions) -> Result<BenchOutcome> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "needs root: mounts of root are measured, and all caches dropped"
    );
    let rows = or_all(&options.rows);
    let inputs = OndemandInputs::prepare(root, options, rows)?;
    let host = Host::look(&inputs.forerun, &[], PROGRAMS);
    let missing = measure::missing;
    let measure = |row, contender| measure::measure(&inputs, row, contender);
    let series = rounds(rows, options.rounds, missing, measure);
    Ok(Report {
        host,
        tree: inputs.text(),
        about: format!("link: {}", remote::LINK_TEXT),
        remarks: inputs.remarks(),
        facts: inputs.facts(),
        series,
    }
    .outcome())
}
