//! Medians, ratios, targets, counters, and the two ways to print them.

use anyhow::{Result, ensure};
use comfy_table::{CellAlignment, Table};
use forerun_measure::run::Run;
use forerun_measure::samples::Samples;
use serde_json::{Value, json};

use super::comparison::Row;
use super::host::Host;

/// The runs of one row by one of the drivers.
pub struct Series<R: Row> {
    /// The work.
    pub row: R,
    /// The driver or program that did it.
    pub contender: R::Contender,
    samples: Samples<Run>,
}

impl<R: Row> Series<R> {
    /// Creates a series without runs.
    pub const fn new(row: R, contender: R::Contender) -> Self {
        Self {
            row,
            contender,
            samples: Samples::new(),
        }
    }

    /// Adds a run, or why there is none.
    pub fn push(&mut self, run: Result<Run>) {
        self.samples.push(run);
    }

    fn seconds(&self) -> Option<f64> {
        self.samples.time(|run| run.seconds)
    }

    fn counter(&self, name: &str) -> Option<u64> {
        self.samples.counter(|run| &run.counters, name)
    }

    fn request_len(&self) -> Option<u64> {
        self.samples.request_len(|run| &run.counters)
    }

    fn messages(&self) -> Option<u64> {
        self.samples.messages()
    }

    fn peak(&self) -> Option<u64> {
        self.samples.peak()
    }

    fn made(&self) -> Option<u64> {
        self.samples.runs.iter().find_map(|run| run.made)
    }

    /// Returns the data that all runs found, or `None` where they differ.
    fn found(&self) -> Option<&str> {
        self.samples.found()
    }
}

/// One comparison: a line of the table.
struct Line<R: Row> {
    row: R,
    what: &'static str,
    against: R::Contender,
    ours: Option<f64>,
    theirs: Option<f64>,
    target: f64,
    /// Whether both did the same work.
    same: bool,
}

impl<R: Row> Line<R> {
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
pub struct Report<R: Row> {
    /// The machine.
    pub host: Host,
    /// The tree or the images, for people.
    pub tree: String,
    /// How, for people.
    pub about: String,
    /// Remarks, for people.
    pub remarks: String,
    /// The same for programs: an object.
    pub facts: Value,
    /// The runs.
    pub series: Vec<Series<R>>,
}

impl<R: Row> Report<R> {
    /// Prints to standard output. Fails where a run did, or where drivers found different data.
    pub fn print(&self, as_json: bool) -> Result<()> {
        match as_json {
            true => println!("{}", self.json()),
            false => println!("{}", self.table()),
        }
        let failures = self.failures();
        ensure!(failures == 0, "{failures} runs failed, as said above");
        let lines = self.lines();
        let differ = lines
            .iter()
            .filter(|line| line.ratio().is_some() && !line.same);
        let differ: Vec<&str> = differ.map(|line| line.what).collect();
        ensure!(
            differ.is_empty(),
            "other data was found than by others: {}",
            differ.join(", ")
        );
        Ok(())
    }

    /// Runs that failed.
    fn failures(&self) -> usize {
        self.series
            .iter()
            .map(|series| series.samples.failures.len())
            .sum()
    }

    fn find(&self, row: R, contender: R::Contender) -> Option<&Series<R>> {
        let is = |series: &&Series<R>| series.row == row && series.contender == contender;
        self.series.iter().find(is)
    }

    fn lines(&self) -> Vec<Line<R>> {
        let mut rows: Vec<R> = self.series.iter().map(|series| series.row).collect();
        rows.dedup();
        let mut lines = Vec::new();
        for row in rows {
            let ours = self.find(row, R::OURS);
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
            lines.extend(self.sizes(row));
        }
        lines
    }

    /// Returns a line with the lengths of the images that were made, in MB, as if they were seconds.
    #[allow(clippy::as_conversions, clippy::cast_precision_loss)] // Lengths far below 2^53.
    fn sizes(&self, row: R) -> Option<Line<R>> {
        let target = row.size_target()?;
        let (against, _) = *row.targets().first()?;
        let made = |contender| self.find(row, contender).and_then(Series::made);
        Some(Line {
            row,
            what: "its size, MB",
            against,
            ours: made(R::OURS).map(|len| len as f64 / 1e6),
            theirs: made(against).map(|len| len as f64 / 1e6),
            target,
            same: true,
        })
    }

    fn table(&self) -> String {
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
            "{}tree: {}\n{}; {} rounds\n\n{table}\n\n\
             Medians, in seconds; all caches dropped before each run, fresh mounts, as root.\n\n{}",
            self.host.text(),
            self.tree,
            self.about,
            self.rounds(),
            self.counters()
        )
    }

    fn rounds(&self) -> usize {
        let rounds = self
            .series
            .iter()
            .map(|s| s.samples.runs.len() + s.samples.failures.len());
        rounds.max().unwrap_or(0)
    }

    /// Returns a table of forerun's counters, and of memory.
    fn counters(&self) -> String {
        let mut table = new_table();
        table.set_header([
            "work",
            "by",
            "requests",
            "MB read",
            "KiB each",
            "decodes",
            "of metadata",
            "repeats",
            "failed",
            "messages",
            "peak MiB",
        ]);
        for column in 2..11 {
            align_right(&mut table, column);
        }
        let number = |value: Option<u64>| value.map_or("-".to_string(), |n| n.to_string());
        for series in self.series.iter().filter(|series| series.peak().is_some()) {
            table.add_row([
                series.row.what().to_string(),
                series.contender.to_string(),
                number(series.counter("source_requests")),
                number(
                    series
                        .counter("source_bytes")
                        .map(|bytes| bytes / 1_000_000),
                ),
                number(series.request_len().map(|bytes| bytes >> 10)),
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
            .filter(|s| s.contender == R::OURS && s.row.size_target().is_none());
        let most = ours.filter_map(Series::peak).max();
        let memory = match most {
            Some(most) if most <= bound => "met",
            Some(_) => "MISSED",
            None => "not measured",
        };
        format!(
            "{table}\n\nMedians; peak: the most of all runs. Bound for forerun's memory, budget + 100 \
             MiB: {} MiB, {memory}.\n{}",
            bound >> 20,
            self.remarks
        )
    }

    fn json(&self) -> String {
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
        let mut report = json!({
            "bench": R::BENCH,
            "host": self.host.json(),
            "tree": self.tree,
            "memory_bound": self.host.memory_bound(),
            "lines": lines,
            "series": series,
        });
        for (name, fact) in self.facts.as_object().into_iter().flatten() {
            report[name] = fact.clone();
        }
        format!("{report:#}")
    }
}

fn series_json<R: Row>(series: &Series<R>) -> Value {
    let of = |value: fn(&Run) -> Value| series.samples.runs.iter().map(value).collect::<Vec<_>>();
    json!({
        "row": series.row.name(),
        "contender": series.contender.to_string(),
        "seconds_median": series.seconds(),
        "seconds": of(|run| run.seconds.into()),
        "peak": of(|run| run.peak.into()),
        "made": of(|run| run.made.into()),
        "found": of(|run| run.found.as_str().into()),
        "counters": of(|run| json!(run.counters)),
        "failures": series.samples.errors(),
    })
}

/// Creates a table without lines.
pub fn new_table() -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table
}

/// Aligns a column of numbers.
pub fn align_right(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::host::Driver;
    use forerun_measure::counters::Counters;
    use forerun_measure::machine::Machine;

    #[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
    enum Row {
        Cat,
        Ls,
        Tree,
        Pack,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Contender {
        Forerun,
        Kernel,
        Other,
    }

    impl std::fmt::Display for Contender {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{self:?}")
        }
    }

    impl super::Row for Row {
        type Contender = Contender;

        const BENCH: &'static str = "test";
        const OURS: Contender = Contender::Forerun;

        fn what(self) -> &'static str {
            "work"
        }

        fn targets(self) -> &'static [(Contender, f64)] {
            match self {
                Self::Cat => &[(Contender::Kernel, 0.40), (Contender::Other, 0.65)],
                Self::Ls => &[(Contender::Kernel, 0.80)],
                Self::Tree => &[(Contender::Kernel, 0.45)],
                Self::Pack => &[(Contender::Other, 1.00)],
            }
        }

        fn size_target(self) -> Option<f64> {
            (self == Self::Pack).then_some(1.01)
        }
    }

    fn series(row: Row, contender: Contender, seconds: &[f64], found: &str) -> Series<Row> {
        let mut series = Series::new(row, contender);
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

    fn report(series: Vec<Series<Row>>) -> Report<Row> {
        Report {
            host: Host {
                machine: Machine::look(),
                drivers: vec![(
                    Driver {
                        name: "SQUASHFS",
                        prefix: "",
                    },
                    Some(("here".to_string(), vec!["XZ".to_string()])),
                )],
                programs: vec![("x", "1".to_string())],
            },
            tree: "tree".to_string(),
            about: "about".to_string(),
            remarks: "remarks".to_string(),
            facts: json!({ "blocks": 3 }),
            series,
        }
    }

    #[test]
    fn each_target_has_its_line() {
        let report = report(vec![
            series(Row::Cat, Contender::Forerun, &[0.5, 0.3, 0.4], "x"),
            series(Row::Cat, Contender::Kernel, &[1.0], "x"),
            series(Row::Cat, Contender::Other, &[0.5], "x"),
            series(Row::Pack, Contender::Forerun, &[1.0], ""),
            series(Row::Pack, Contender::Other, &[1.0], ""),
            series(Row::Ls, Contender::Forerun, &[1.0], "4 lines"),
            series(Row::Ls, Contender::Kernel, &[9.0], "5 lines"),
            series(Row::Tree, Contender::Forerun, &[1.0], ""),
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
        assert_eq!(
            (&json["blocks"], &json["bench"]),
            (&json!(3), &json!("test"))
        );
        let error = report.print(true).unwrap_err().to_string();
        assert!(error.contains("other data"), "{error}");
        assert_eq!(json["series"][0]["counters"][0]["decodes"], 7);
    }

    #[test]
    fn a_failed_run_is_counted_and_the_others_stay() {
        let mut failed = series(Row::Tree, Contender::Forerun, &[1.0], "x");
        failed.push(Err(anyhow::anyhow!("no such thing")));
        let report = report(vec![
            failed,
            series(Row::Tree, Contender::Kernel, &[4.0], "x"),
        ]);
        assert_eq!(report.failures(), 1);
        assert!(report.json().contains("no such thing"));
        assert!(report.table().contains("2 rounds") && report.table().contains("0.250"));
    }
}
