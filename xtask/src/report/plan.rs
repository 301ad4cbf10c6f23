//! The benches and rows that a report measures, and how long that takes.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::kept::KeptFigures;
use crate::bench::{BENCHES, Bench, rows_of};

/// Seconds of a round of one row, or of a bench without rows, where no record tells.
const USUAL: [(&str, f64); 7] = [
    ("romfs", 40.0),
    ("squashfs", 25.0),
    ("erofs", 15.0),
    ("exfat", 30.0),
    ("ondemand", 20.0),
    ("metadata", 90.0),
    ("oci", 80.0),
];

/// A bench to run.
pub struct PlannedBench {
    /// Its name.
    pub name: &'static str,
    /// Its rows that are measured; all where there are none.
    rows: Vec<String>,
    /// The bench, with its options.
    pub bench: Bench,
}

/// Returns the benches that `only` names, each `BENCH` or `BENCH/ROW`; all where it is empty.
pub fn plan(only: &[String], rounds: u32, program: Option<&Path>) -> Result<Vec<PlannedBench>> {
    for name in only {
        let bench = name.split('/').next().unwrap_or_default();
        ensure!(
            BENCHES.contains(&bench),
            "no bench is named {bench}: there are {}",
            BENCHES.join(", ")
        );
    }
    let mut planned = Vec::new();
    for name in BENCHES {
        let is_whole = only.is_empty() || only.iter().any(|of| of == name);
        let rows = only
            .iter()
            .filter_map(|of| of.strip_prefix(name)?.strip_prefix('/'));
        let rows: Vec<String> = match is_whole {
            true => Vec::new(),
            false => rows.map(str::to_string).collect(),
        };
        if !is_whole && rows.is_empty() {
            continue;
        }
        let mut words = vec![name.to_string(), "--rounds".to_string(), rounds.to_string()];
        if let Some(program) = program {
            let program = program
                .to_str()
                .context("the path of the program is not UTF-8")?;
            words.extend(["--program".to_string(), program.to_string()]);
        }
        if !rows.is_empty() {
            words.extend(["--rows".to_string(), rows.join(",")]);
        }
        planned.push(PlannedBench {
            name,
            rows,
            bench: Bench::parse(&words)?,
        });
    }
    Ok(planned)
}

impl PlannedBench {
    /// Returns about how many seconds a round takes, by the records of earlier runs.
    pub fn round_seconds(&self, kept: &KeptFigures) -> f64 {
        let of_bench = kept
            .records
            .iter()
            .filter(|of| of.record.bench == self.name);
        let usual = USUAL.iter().find(|(name, _)| *name == self.name);
        let usual = usual.map_or(0.0, |(_, seconds)| *seconds);
        let rows = match self.rows.is_empty() {
            true => rows_of(self.name),
            false => self.rows.clone(),
        };
        if rows.is_empty() {
            let known: f64 = of_bench.map(|of| of.record.round_seconds).sum();
            return if known > 0.0 { known } else { usual };
        }
        let seconds = rows.iter().map(|row| {
            let known = of_bench.clone().find(|of| of.record.row == *row);
            known.map_or(usual, |of| of.record.round_seconds)
        });
        seconds.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::kept::tests::{record, run};
    use super::*;

    fn planned(only: &[&str]) -> Result<Vec<PlannedBench>> {
        let only: Vec<String> = only.iter().map(|name| (*name).to_string()).collect();
        plan(&only, 3, None)
    }

    #[test]
    fn benches_run_in_order_and_rows_as_named() {
        let names = |planned: &[PlannedBench]| planned.iter().map(|of| of.name).collect::<Vec<_>>();
        assert_eq!(names(&planned(&[]).unwrap()), BENCHES);
        let some = planned(&["exfat/read", "squashfs", "exfat/read-small"]).unwrap();
        assert_eq!(names(&some), ["squashfs", "exfat"]);
        assert_eq!(some[1].rows, ["read", "read-small"]);
        for wrong in ["nothing", "exfat/nothing", "romfs/file"] {
            assert!(planned(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_time_is_that_of_earlier_runs_where_there_are_some() {
        let mut kept = KeptFigures::default();
        let read = record("exfat", "read", &[1.0], &[1.0]);
        kept.merge("a", run("d", None), vec![read]);
        let of = |only| planned(&[only]).unwrap()[0].round_seconds(&kept);
        assert_eq!(of("exfat/read"), 7.0);
        assert_eq!(of("exfat/write"), 30.0);
        assert_eq!(of("romfs"), 40.0);
        assert!(of("exfat") > 200.0);
    }
}
