//! SquashFS, and AppImages, compared with the programs that read and make them already.
//!
//! Each row of the table is a piece of work that users wait for, done by forerun and by the other
//! programs that can do it, on the same images, in one run. All caches are dropped before each; each
//! mount is fresh, so that its daemon's cache is empty too. The order of the drivers changes from round
//! to round, so that a slow minute of the machine affects all of them.

mod appimage;
mod drivers;
mod inputs;
mod measure;
mod modules;
mod rows;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::json;

use super::comparison::{Shared, all_names, or_all, rounds};
use super::host::{Driver, Host};
use super::outcome::BenchOutcome;
use super::table::Report;
use super::tree::BIG_LEN;
use inputs::BLOCK;
use rows::SquashfsRow;

/// How to measure.
#[derive(clap::Args)]
pub struct SquashfsOptions {
    #[command(flatten)]
    shared: Shared,
    /// Where trees and images are kept between runs: a disk with 6 GB to spare, not memory
    #[arg(long, default_value = DIR)]
    dir: PathBuf,
    /// Measure only these, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ROWS")]
    rows: Vec<SquashfsRow>,
    /// Start AppImages with this runtime, and not that of the tree
    #[arg(long, value_name = "FILE")]
    runtime: Option<PathBuf>,
}

/// Where trees and images are kept by default.
pub const DIR: &str = "/var/tmp/forerun-bench-squashfs";

impl SquashfsOptions {
    /// Returns whether to print JSON.
    pub const fn json(&self) -> bool {
        self.shared.json
    }
}

/// Returns the names of the rows.
pub fn row_names() -> Vec<String> {
    all_names::<SquashfsRow>()
}

/// Measures. A run that fails is a part of the outcome, so that the others are not lost.
pub fn run(root: &Path, options: &SquashfsOptions) -> Result<BenchOutcome> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "needs root: to mount with the kernel's driver, and to drop all caches"
    );
    let shared = &options.shared;
    let rows = or_all(&options.rows);
    let (tree, program) = (shared.tree.as_deref(), shared.program.as_deref());
    let runtime = options.runtime.as_deref();
    let inputs = inputs::prepare(root, &options.dir, tree, program, runtime, rows)?;
    let driver = Driver {
        name: "SQUASHFS",
        prefix: "CONFIG_SQUASHFS_",
    };
    let programs = [
        (appimage::OTHER_RUNTIME, "--appimage-version"),
        ("squashfuse_ll", "--help"),
        ("unsquashfs", "-version"),
        ("mksquashfs", "-version"),
        ("python3", "--version"),
    ];
    let host = Host::look(&inputs.forerun, &[driver], &programs);
    let missing = |row, contender| match row {
        SquashfsRow::AppImage => appimage::missing(contender),
        SquashfsRow::Import | SquashfsRow::ImportSource => modules::missing(contender),
        _ => drivers::missing(contender),
    };
    let measure = |row, contender| measure::measure(&inputs, row, contender);
    let series = rounds(rows, shared.rounds, missing, measure);
    let blocks = BIG_LEN.div_ceil(BLOCK);
    Ok(Report {
        host,
        tree: inputs.tree.text(),
        about: "all images: blocks of 128 KiB".to_string(),
        remarks: format!("The large file has {blocks} blocks."),
        facts: json!({ "big_file_blocks": blocks }),
        series,
    }
    .outcome())
}
