//! How fast a read-only tree is walked: `ls -lR`, uncached and cached, in every way that the metadata of
//! an EROFS image, or of a composefs image with its objects elsewhere, can be read.
//!
//! Time starts before the mount, since that is when metadata is read ahead; the time of the mount is
//! shown separately too.

mod table;
mod ways;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use forerun_measure::programs::has_filesystem;
use forerun_measure::run::list;
use forerun_measure::turns::{Turn, turns};

use super::comparison::{Shared, told};
use super::erofs::{self, ErofsImage, ErofsInputs, lacks_feature};
use super::host::Host;
use super::outcome::BenchOutcome;
use super::work::drop_all;
use crate::process;
use table::{ListingRun, MetadataReport, MetadataSeries};
use ways::Way;

/// How to measure.
#[derive(clap::Args)]
pub struct MetadataOptions {
    #[command(flatten)]
    shared: Shared,
    /// Where images are kept between runs: a disk with 6 GB to spare, not memory
    #[arg(long, default_value = erofs::DIR)]
    dir: PathBuf,
}

impl MetadataOptions {
    /// Returns whether to print JSON.
    pub const fn json(&self) -> bool {
        self.shared.json
    }
}

/// Measures. A run that fails is a part of the outcome, so that the others are not lost.
pub fn run(root: &Path, options: &MetadataOptions) -> Result<BenchOutcome> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "needs root: to mount with the kernel's drivers, and to drop all caches"
    );
    let shared = &options.shared;
    let images = [ErofsImage::Tree, ErofsImage::Ours, ErofsImage::Composefs];
    let (tree, program) = (shared.tree.as_deref(), shared.program.as_deref());
    let inputs = erofs::prepare(root, &options.dir, tree, program, &images)?;
    let host = Host::look(&inputs.forerun, erofs::DRIVERS, erofs::PROGRAMS);
    let mut all = Vec::new();
    for way in ways::all() {
        match missing(way, &inputs) {
            Some(why) => eprintln!("SKIP: {}: {why}", way.text()),
            None => all.push(MetadataSeries::new(way)),
        }
    }
    // All ways in one row: each round the other way round.
    for Turn { round, series } in turns(&vec![(); all.len()], shared.rounds) {
        let series: &mut MetadataSeries = &mut all[series];
        eprintln!("round {round} of {}: {}", shared.rounds, series.way.text());
        let start = Instant::now();
        let run = told(measure(&inputs, series.way));
        series.push(run, start.elapsed().as_secs_f64());
    }
    Ok(MetadataReport {
        host,
        tree: inputs.tree.text(),
        rounds: shared.rounds,
        series: all,
    }
    .outcome())
}

/// Returns what the kernel lacks for it.
fn missing(way: Way, inputs: &ErofsInputs) -> Option<String> {
    let lacks = way.filesystems().iter().find(|name| !has_filesystem(name));
    if let Some(name) = lacks {
        return Some(format!("the kernel has no {name}"));
    }
    let error = way
        .without_forerun()?
        .mount(inputs)
        .and_then(|mount| mount.finish())
        .err()?;
    lacks_feature(&error).map(str::to_string)
}

fn measure(inputs: &ErofsInputs, way: Way) -> Result<ListingRun> {
    drop_all()?;
    // What is measured is not how programs get into memory.
    process::output(Command::new(&inputs.forerun).arg("--version"))?;
    process::output(Command::new("losetup").arg("--version"))?;
    let start = Instant::now();
    let mount = way.mount(inputs)?;
    let mounted = start.elapsed();
    let first = list(&mount.path())?;
    let listed = start.elapsed();
    let second = list(&mount.path())?;
    let again = start.elapsed();
    ensure!(first == second, "first {first}, then {second}");
    let (counters, _peak) = mount.finish()?;
    Ok(ListingRun {
        mount: mounted.as_secs_f64(),
        uncached: (listed - mounted).as_secs_f64(),
        cached: (again - listed).as_secs_f64(),
        counters,
        found: first,
    })
}
