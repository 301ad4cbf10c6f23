//! Medians, ratios, targets, counters, and the two ways to print them.

use anyhow::{Error, Result};
use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};

use super::host::Host;
use super::inputs::{BIG_LEN, BLOCK, Inputs};
use super::measure::Run;
use super::rows::{Row, SIZE_TARGET, Who};
use crate::bench::report::median;

/// The runs of one row by one of the drivers.
pub struct Series {
    /// What was done.
    pub row: Row,
    /// Who did it.
    pub who: Who,
    runs: Vec<Run>,
    failures: Vec<Error>,
}

impl Series {
    /// No runs yet.
    pub const fn new(row: Row, who: Who) -> Self {
        Self {
            row,
            who,
            runs: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Adds a run, or why there is none.
    pub fn push(&mut self, run: Result<Run>) {
        match run {
            Ok(run) => self.runs.push(run),
            Err(error) => {
                eprintln!("FAILED: {error:#}");
                self.failures.push(error);
            }
        }
    }

    fn seconds(&self) -> Option<f64> {
        let mut seconds: Vec<f64> = self.runs.iter().map(|run| run.seconds).collect();
        (!seconds.is_empty()).then(|| median(&mut seconds))
    }

    /// The median of a counter, of which those at 0 may not be told; `None` where nobody counted.
    fn counter(&self, name: &str) -> Option<u64> {
        let counted = self.runs.iter().filter(|run| !run.counters.is_empty());
        let values = counted.map(|run| run.counters.get(name).copied().unwrap_or(0));
        let mut values: Vec<u64> = values.collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied()
    }

    /// Messages of the FUSE protocol.
    fn messages(&self) -> Option<u64> {
        let of = |run: &Run| {
            let named = run
                .counters
                .iter()
                .filter(|(name, _)| name.starts_with("fuse_"));
            named.map(|(_, count)| count).sum::<u64>()
        };
        let mut values: Vec<u64> = self.runs.iter().map(of).collect();
        values.sort_unstable();
        values
            .get(values.len() / 2)
            .copied()
            .filter(|&count| count > 0)
    }

    fn peak(&self) -> Option<u64> {
        self.runs.iter().filter_map(|run| run.peak).max()
    }

    fn made(&self) -> Option<u64> {
        self.runs.iter().find_map(|run| run.made)
    }

    /// What all runs found, or `None` where they differ.
    fn found(&self) -> Option<&str> {
        let first = &self.runs.first()?.found;
        self.runs
            .iter()
            .all(|run| run.found == *first)
            .then_some(first)
    }
}

/// One comparison: a line of the table.
struct Line {
    row: Row,
    what: &'static str,
    against: Who,
    ours: Option<f64>,
    theirs: Option<f64>,
    target: f64,
    /// Whether both did the same work.
    same: bool,
}

impl Line {
    fn ratio(&self) -> Option<f64> {
        Some(self.ours? / self.theirs?)
    }

    fn verdict(&self) -> &'static str {
        match self.ratio() {
            None => "not measured",
            Some(_) if !self.same => "FOUND OTHER DATA",
            Some(ratio) if ratio <= self.target => "met",
            Some(_) => "MISSED",
        }
    }
}

/// All of it.
pub struct Report {
    host: Host,
    tree: String,
    series: Vec<Series>,
}

impl Report {
    /// Of these runs.
    pub fn new(host: Host, inputs: &Inputs, series: Vec<Series>) -> Self {
        let tree = format!(
            "{}: {} files, {} bytes",
            inputs.tree.display(),
            inputs.tree_files,
            inputs.tree_bytes
        );
        Self { host, tree, series }
    }

    /// Runs that failed.
    pub fn failures(&self) -> usize {
        self.series.iter().map(|series| series.failures.len()).sum()
    }

    fn find(&self, row: Row, who: Who) -> Option<&Series> {
        let is = |series: &&Series| series.row == row && series.who == who;
        self.series.iter().find(is)
    }

    fn lines(&self) -> Vec<Line> {
        let mut rows: Vec<Row> = self.series.iter().map(|series| series.row).collect();
        rows.dedup();
        let mut lines = Vec::new();
        for row in rows {
            let ours = self.find(row, Who::Forerun);
            for &(against, target) in row.targets() {
                let theirs = self.find(row, against);
                lines.push(Line {
                    row,
                    what: row.what(),
                    against,
                    ours: ours.and_then(Series::seconds),
                    theirs: theirs.and_then(Series::seconds),
                    target,
                    same: ours.and_then(Series::found) == theirs.and_then(Series::found),
                });
            }
            if row == Row::Pack {
                lines.push(self.sizes());
            }
        }
        lines
    }

    /// Lengths of the images that were made, in MB, as if they were seconds.
    #[allow(clippy::as_conversions, clippy::cast_precision_loss)] // Lengths far below 2^53.
    fn sizes(&self) -> Line {
        let made = |who| self.find(Row::Pack, who).and_then(Series::made);
        Line {
            row: Row::Pack,
            what: "its size, MB",
            against: Who::Mksquashfs,
            ours: made(Who::Forerun).map(|len| len as f64 / 1e6),
            theirs: made(Who::Mksquashfs).map(|len| len as f64 / 1e6),
            target: SIZE_TARGET,
            same: true,
        }
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut table = new_table();
        table.set_header([
            "work", "forerun", "against", "theirs", "ratio", "at most", "target",
        ]);
        for column in [1, 3, 4, 5] {
            align_right(&mut table, column);
        }
        let number = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_string(), |value| format!("{value:.digits$}"))
        };
        for line in self.lines() {
            table.add_row([
                line.what.to_string(),
                number(line.ours, 3),
                line.against.to_string(),
                number(line.theirs, 3),
                number(line.ratio(), 3),
                format!("{:.2}", line.target),
                line.verdict().to_string(),
            ]);
        }
        format!(
            "{}tree: {}\nall images: blocks of 128 KiB; {} rounds\n\n{table}\n\n\
             Medians, in seconds; all caches dropped before each run, fresh mounts, as root.\n\n{}",
            self.host.text(),
            self.tree,
            self.rounds(),
            self.counters()
        )
    }

    fn rounds(&self) -> usize {
        let rounds = self.series.iter().map(|s| s.runs.len() + s.failures.len());
        rounds.max().unwrap_or(0)
    }

    /// What forerun counted, and memory.
    fn counters(&self) -> String {
        let mut table = new_table();
        table.set_header([
            "work",
            "by",
            "requests",
            "MB read",
            "decodes",
            "of metadata",
            "repeats",
            "failed",
            "messages",
            "peak MiB",
        ]);
        for column in 2..10 {
            align_right(&mut table, column);
        }
        let number = |value: Option<u64>| value.map_or("-".to_string(), |n| n.to_string());
        for series in self.series.iter().filter(|series| series.peak().is_some()) {
            table.add_row([
                series.row.what().to_string(),
                series.who.to_string(),
                number(series.counter("source_requests")),
                number(
                    series
                        .counter("source_bytes")
                        .map(|bytes| bytes / 1_000_000),
                ),
                number(series.counter("decodes")),
                number(series.counter("metadata_decodes")),
                number(series.counter("repeated_decodes")),
                number(series.counter("decode_errors")),
                number(series.messages()),
                number(series.peak().map(|bytes| bytes >> 20)),
            ]);
        }
        let bound = self.host.memory_bound();
        let ours = self
            .series
            .iter()
            .filter(|s| s.who == Who::Forerun && s.row != Row::Pack);
        let most = ours.filter_map(Series::peak).max();
        let memory = match most {
            Some(most) if most <= bound => "met",
            Some(_) => "MISSED",
            None => "not measured",
        };
        format!(
            "{table}\n\nMedians; peak: the most of all runs. Bound for forerun's memory, budget + 100 \
             MiB: {} MiB, {memory}.\nThe large file has {} blocks.",
            bound >> 20,
            BIG_LEN.div_ceil(BLOCK)
        )
    }

    /// For programs.
    pub fn json(&self) -> String {
        let lines: Vec<Value> = self
            .lines()
            .iter()
            .map(|line| {
                json!({
                    "row": line.row.name(),
                    "work": line.what,
                    "against": line.against.to_string(),
                    "forerun": line.ours,
                    "theirs": line.theirs,
                    "ratio": line.ratio(),
                    "at_most": line.target,
                    "verdict": line.verdict(),
                })
            })
            .collect();
        let series: Vec<Value> = self.series.iter().map(series_json).collect();
        let report = json!({
            "bench": "squashfs",
            "host": self.host.json(),
            "tree": self.tree,
            "memory_bound": self.host.memory_bound(),
            "big_file_blocks": BIG_LEN.div_ceil(BLOCK),
            "lines": lines,
            "series": series,
        });
        format!("{report:#}")
    }
}

fn series_json(series: &Series) -> Value {
    let of = |value: fn(&Run) -> Value| series.runs.iter().map(value).collect::<Vec<_>>();
    let failures: Vec<String> = series.failures.iter().map(|e| format!("{e:#}")).collect();
    json!({
        "row": series.row.name(),
        "who": series.who.to_string(),
        "seconds_median": series.seconds(),
        "seconds": of(|run| run.seconds.into()),
        "peak": of(|run| run.peak.into()),
        "made": of(|run| run.made.into()),
        "found": of(|run| run.found.as_str().into()),
        "counters": of(|run| json!(run.counters)),
        "failures": failures,
    })
}

fn new_table() -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table
}

fn align_right(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::mount::Counters;

    fn series(row: Row, who: Who, seconds: &[f64], found: &str) -> Series {
        let mut series = Series::new(row, who);
        for &seconds in seconds {
            series.push(Ok(Run {
                seconds,
                counters: Counters::from([("decodes".to_string(), 7)]),
                peak: Some(1 << 20),
                made: Some(100),
                found: found.to_string(),
            }));
        }
        series
    }

    fn report(series: Vec<Series>) -> Report {
        Report {
            host: Host {
                kernel: "1.2".to_string(),
                squashfs: Some(("here".to_string(), vec!["XZ".to_string()])),
                programs: vec![("x", "1".to_string())],
                cpus: 2,
                memory: 1 << 30,
            },
            tree: "tree".to_string(),
            series,
        }
    }

    #[test]
    fn each_target_has_its_line() {
        let report = report(vec![
            series(Row::CatGzip, Who::Forerun, &[0.5, 0.3, 0.4], "x"),
            series(Row::CatGzip, Who::Kernel, &[1.0], "x"),
            series(Row::CatGzip, Who::Squashfuse, &[0.5], "x"),
            series(Row::Pack, Who::Forerun, &[1.0], ""),
            series(Row::Pack, Who::Mksquashfs, &[1.0], ""),
            series(Row::Ls, Who::Forerun, &[1.0], "4 lines"),
            series(Row::Ls, Who::Kernel, &[9.0], "5 lines"),
            series(Row::Tree, Who::Forerun, &[1.0], ""),
        ]);
        let verdicts: Vec<&str> = report.lines().iter().map(Line::verdict).collect();
        let expected = [
            "met",
            "MISSED",
            "met",
            "met",
            "FOUND OTHER DATA",
            "not measured",
        ];
        assert_eq!(verdicts, expected);
        let text = report.table();
        assert!(
            text.contains("0.400") && text.contains("SQUASHFS in here: XZ"),
            "{text}"
        );
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["lines"][0]["ratio"], 0.4);
        assert_eq!(json["series"][0]["counters"][0]["decodes"], 7);
    }

    #[test]
    fn a_failed_run_is_counted_and_the_others_stay() {
        let mut failed = series(Row::Tree, Who::Forerun, &[1.0], "x");
        failed.push(Err(anyhow::anyhow!("no such thing")));
        let report = report(vec![failed, series(Row::Tree, Who::Kernel, &[4.0], "x")]);
        assert_eq!(report.failures(), 1);
        assert!(report.json().contains("no such thing"));
        assert!(report.table().contains("2 rounds") && report.table().contains("0.250"));
    }
}
