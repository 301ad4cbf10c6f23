//! EROFS and composefs compared with the programs that read and make them already.
//!
//! Each row of the table is a piece of work that users wait for, done by forerun and by the other
//! programs that can do it, on the same images, in one run. All caches are dropped before each, except
//! where caches are measured. Each mount is fresh, so that its daemon's cache is empty too.

mod drivers;
mod inputs;
mod measure;
mod rows;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::json;

use super::comparison::{Shared, all_names, or_all, rounds};
use super::host::{Driver, Host};
use super::outcome::BenchOutcome;
use super::table::Report;
use rows::ErofsRow;

pub use drivers::lacks_feature;
pub use inputs::{ErofsInputs, prepare};
pub use rows::ErofsImage;

/// Where images are kept by default.
pub const DIR: &str = "/var/tmp/forerun-bench-erofs";
/// The kernel's drivers that are measured.
pub const DRIVERS: &[Driver] = &[
    Driver {
        name: "EROFS",
        prefix: "CONFIG_EROFS_FS_",
    },
    Driver {
        name: "OVERLAYFS",
        prefix: "CONFIG_OVERLAY_FS_",
    },
];

/// The programs. mkfs.erofs 1.5 does not say its version: it comes with fsck.erofs.
pub const PROGRAMS: &[(&str, &str)] = &[("erofsfuse", "--help"), ("fsck.erofs", "-V")];

/// How to measure.
#[derive(clap::Args)]
pub struct ErofsOptions {
    #[command(flatten)]
    shared: Shared,
    /// Where images are kept between runs: a disk with 6 GB to spare, not memory
    #[arg(long, default_value = DIR)]
    dir: PathBuf,
    /// Measure only these, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ROWS")]
    rows: Vec<ErofsRow>,
}

impl ErofsOptions {
    /// Returns whether to print JSON.
    pub const fn json(&self) -> bool {
        self.shared.json
    }
}

/// Returns the names of the rows.
pub fn row_names() -> Vec<String> {
    all_names::<ErofsRow>()
}

/// Measures. A run that fails is a part of the outcome, so that the others are not lost.
pub fn run(root: &Path, options: &ErofsOptions) -> Result<BenchOutcome> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "needs root: to mount with the kernel's drivers, and to drop all caches"
    );
    let shared = &options.shared;
    let rows = or_all(&options.rows);
    let images: Vec<ErofsImage> = rows.iter().filter_map(|row| row.image()).collect();
    let (tree, program) = (shared.tree.as_deref(), shared.program.as_deref());
    let inputs = prepare(root, &options.dir, tree, program, &images)?;
    let host = Host::look(&inputs.forerun, DRIVERS, PROGRAMS);
    let missing = |row, contender| drivers::missing(&inputs, row, contender);
    let measure = |row, contender| measure::measure(&inputs, row, contender);
    let series = rounds(rows, shared.rounds, missing, measure);
    Ok(Report {
        host,
        tree: inputs.tree.text(),
        about: "all images: blocks of 4 KiB".to_string(),
        remarks:
            "Of cached rows, counters are those of both listings. Objects in memory: a million \
                  reads."
                .to_string(),
        facts: json!({}),
        series,
    }
    .outcome())
}
