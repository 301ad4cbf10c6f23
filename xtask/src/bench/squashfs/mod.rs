//! SquashFS against those who read and make it already.
//!
//! Each row of the table is a piece of work that users wait for, done by forerun and by the others
//! that can do it, on the same images, in one run. All caches are dropped before each; each mount
//! is fresh, so that its daemon's cache is empty too. Who comes first changes from round to round,
//! so that a slow minute of the machine meets all of them.

mod drivers;
mod generated;
mod host;
mod inputs;
mod measure;
mod rows;
mod scratch;
mod table;
mod work;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::ValueEnum;

use host::Host;
use rows::Row;
use table::{Report, Series};

pub use work::{Work, run as work};

/// How to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Rounds; medians are reported
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Where trees and images are kept between runs: a disk with 6 GB to spare, not memory
    #[arg(long, default_value = "/var/tmp/forerun-bench-squashfs")]
    dir: PathBuf,
    /// The tree to measure with [default: the newest linux-source of /usr/src, unpacked; else one
    /// is generated]
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Measure only these, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ROWS")]
    rows: Vec<Row>,
    /// Measure this program and not a release build of the tree
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Print JSON and no table
    #[arg(long)]
    json: bool,
}

/// Measures and prints. Fails at the end where a run did, so that the others are not lost.
pub fn run(root: &Path, options: &Options) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "needs root: to mount with the kernel's driver, and to drop all caches"
    );
    let rows = match options.rows.as_slice() {
        [] => Row::value_variants(),
        rows => rows,
    };
    let program = options.program.as_deref();
    let inputs = inputs::prepare(root, &options.dir, options.tree.as_deref(), program, rows)?;
    let host = Host::look(&inputs.forerun);
    let mut all = series(rows);
    for round in 1..=options.rounds {
        for row in rows {
            let mut of_row: Vec<&mut Series> = all.iter_mut().filter(|s| s.row == *row).collect();
            if round % 2 == 0 {
                of_row.reverse();
            }
            for series in of_row {
                eprintln!(
                    "round {round} of {}: {}, {}",
                    options.rounds,
                    row.what(),
                    series.who
                );
                series.push(measure::measure(&inputs, *row, series.who));
            }
        }
    }
    let report = Report::new(host, &inputs, all);
    match options.json {
        true => println!("{}", report.json()),
        false => println!("{}", report.table()),
    }
    let failures = report.failures();
    ensure!(failures == 0, "{failures} runs failed, as said above");
    Ok(())
}

fn series(rows: &[Row]) -> Vec<Series> {
    let mut all = Vec::new();
    for &row in rows {
        for who in row.all_who() {
            match drivers::missing(who) {
                Some(why) => eprintln!("SKIP: {}: {why}", row.what()),
                None => all.push(Series::new(row, who)),
            }
        }
    }
    all
}
