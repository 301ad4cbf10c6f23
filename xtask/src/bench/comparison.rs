//! Rows of a table: the measured work, the programs to compare with, and how much of their time it may
//! take.

use std::fmt;
use std::time::Instant;

use anyhow::Result;
use clap::ValueEnum;
use forerun_measure::run::Run;
use forerun_measure::turns::{Turn, turns};

use super::table::Series;

/// A measured piece of work: a row of a table.
pub trait Row: Copy + PartialEq + ValueEnum + 'static {
    /// The programs and drivers that can do it.
    type Contender: Copy + PartialEq + fmt::Display + 'static;

    /// The name of the table.
    const BENCH: &'static str;
    /// This project.
    const OURS: Self::Contender;

    /// Describes the row for people.
    fn what(self) -> &'static str;

    /// Returns the other programs that do it too, each with the largest share of their time that forerun
    /// may take.
    fn targets(self) -> &'static [(Self::Contender, f64)];

    /// Returns, where images are made, how much larger than the first other program's image that of
    /// forerun may be.
    fn size_target(self) -> Option<f64>;

    /// Returns, where it is measured, how much of the processor time of the first other program's daemon that of
    /// forerun may take.
    fn cpu_target(self) -> Option<f64> {
        None
    }

    /// Returns the name for `--rows`, and JSON.
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_string())
    }

    /// Lists forerun and the others.
    fn contenders(self) -> Vec<Self::Contender> {
        let others = self.targets().iter().map(|(contender, _)| *contender);
        std::iter::once(Self::OURS).chain(others).collect()
    }
}

/// How to measure, whatever it is.
#[derive(clap::Args)]
pub struct Shared {
    /// Rounds; medians are reported
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// The tree to measure with [default: the newest linux-source of /usr/src, unpacked; else one
    /// is generated]
    #[arg(long, value_name = "DIR")]
    pub tree: Option<std::path::PathBuf>,
    /// Measure this program and not the tree as it is installed
    #[arg(long, value_name = "FILE")]
    pub program: Option<std::path::PathBuf>,
    /// Print JSON and no table
    #[arg(long)]
    pub json: bool,
}

/// Returns `rows`, or all rows where none are named.
pub fn or_all<R: Row>(rows: &[R]) -> &[R] {
    match rows {
        [] => R::value_variants(),
        rows => rows,
    }
}

/// Returns the names of all rows.
pub fn all_names<R: Row>() -> Vec<String> {
    let rows = R::value_variants().iter();
    rows.map(|row| row.name()).collect()
}

/// Measures all rows in each round. The order of the drivers changes from round to round, so that a
/// slow minute of the machine meets all of them.
pub fn rounds<R: Row>(
    rows: &[R],
    rounds: u32,
    missing: impl Fn(R, R::Contender) -> Option<String>,
    measure: impl Fn(R, R::Contender) -> Result<Run>,
) -> Vec<Series<R>> {
    let mut all = Vec::new();
    for &row in rows {
        for contender in row.contenders() {
            match missing(row, contender) {
                Some(why) => eprintln!("SKIP: {}, {contender}: {why}", row.what()),
                None => all.push(Series::new(row, contender)),
            }
        }
    }
    let of_rows: Vec<R> = all.iter().map(|series| series.row).collect();
    for Turn { round, series } in turns(&of_rows, rounds) {
        let series = &mut all[series];
        let (row, contender) = (series.row, series.contender);
        eprintln!("round {round} of {rounds}: {}, {contender}", row.what());
        let start = Instant::now();
        let run = told(measure(row, contender));
        series.push(run, start.elapsed().as_secs_f64());
    }
    all
}

/// Prints why a run failed, so that the user need not wait for the end.
pub fn told<T>(run: Result<T>) -> Result<T> {
    if let Err(error) = &run {
        eprintln!("FAILED: {error:#}");
    }
    run
}
