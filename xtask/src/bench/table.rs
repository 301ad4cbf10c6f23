//! The runs of a bench whose rows compare forerun with others: its records, and their tables.

use anyhow::Result;
use comfy_table::{CellAlignment, Table};
use forerun_measure::run::Run;
use forerun_measure::samples::Samples;
use serde_json::{Value, json};

use super::comparison::Row;
use super::host::Host;
use super::outcome::BenchOutcome;
use super::record::{Against, BenchRecord, Measured};

/// The runs of one row by one of the drivers.
pub struct Series<R: Row> {
    /// The work.
    pub row: R,
    /// The driver or program that did it.
    pub contender: R::Contender,
    /// Seconds that the runs took, with preparations.
    took: f64,
    samples: Samples<Run>,
}

impl<R: Row> Series<R> {
    /// Creates a series without runs.
    pub const fn new(row: R, contender: R::Contender) -> Self {
        Self {
            row,
            contender,
            took: 0.0,
            samples: Samples::new(),
        }
    }

    /// Adds a run, or why there is none, and the seconds that it took with its preparations.
    pub fn push(&mut self, run: Result<Run>, took: f64) {
        self.took += took;
        self.samples.push(run);
    }

    fn measured(&self) -> Measured {
        let runs = &self.samples.runs;
        Measured {
            counters: Measured::counters(runs.iter().map(|run| &run.counters)),
            peak: self.samples.peak(),
            failures: self.samples.errors(),
            ..Measured::new(
                self.contender.to_string(),
                runs.iter().map(|run| run.seconds).collect(),
            )
        }
        .with_found(runs.iter().map(|run| run.found.as_str()))
    }

    /// Returns what was measured beside the time.
    fn beside(&self, of: impl Fn(&Run) -> Option<f64>) -> Measured {
        let runs = self.samples.runs.iter().filter_map(of).collect();
        Measured::new(self.contender.to_string(), runs)
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
    /// Makes records of the runs, and tables of the records.
    pub fn outcome(self) -> BenchOutcome {
        let records = self.records();
        let text = format!(
            "{}tree: {}\n{}; {} rounds\n\n{}\n\n\
             Medians, in seconds; all caches dropped before each run, fresh mounts, as root.\n\n{}",
            self.host.text(),
            self.tree,
            self.about,
            self.rounds(),
            comparisons(&records),
            self.counters(&records)
        );
        let mut facts = self.facts;
        facts["bench"] = json!(R::BENCH);
        facts["memory_bound"] = json!(self.host.memory_bound());
        BenchOutcome {
            host: self.host,
            tree: self.tree,
            facts,
            records,
            text,
        }
    }

    fn find(&self, row: R, contender: R::Contender) -> Option<&Series<R>> {
        let is = |series: &&Series<R>| series.row == row && series.contender == contender;
        self.series.iter().find(is)
    }

    fn records(&self) -> Vec<BenchRecord> {
        let mut rows: Vec<R> = self.series.iter().map(|series| series.row).collect();
        rows.dedup();
        let mut records = Vec::new();
        for row in rows {
            records.push(self.record(row));
            records.extend(self.size(row));
            records.extend(self.cpu(row));
        }
        records
    }

    fn record(&self, row: R) -> BenchRecord {
        let measured = |contender: R::Contender| match self.find(row, contender) {
            Some(series) => series.measured(),
            None => Measured::new(contender.to_string(), Vec::new()),
        };
        let ours = measured(R::OURS);
        let others = row.targets().iter();
        let others = others
            .map(|&(contender, most)| Against::new(&ours, measured(contender), Some(most)))
            .collect();
        BenchRecord {
            bench: R::BENCH.to_string(),
            row: row.name(),
            work: row.what().to_string(),
            unit: "s".to_string(),
            round_seconds: self.round_seconds(row),
            ours,
            others,
        }
    }

    /// Returns the record of the images that a row makes.
    #[allow(clippy::as_conversions, clippy::cast_precision_loss)] // Lengths far below 2^53.
    fn size(&self, row: R) -> Option<BenchRecord> {
        let made = |run: &Run| run.made.map(|len| len as f64 / 1e6);
        self.beside(row, row.size_target()?, ["size", "size", "MB"], made)
    }

    /// Returns the record of the processor time that daemons took.
    fn cpu(&self, row: R) -> Option<BenchRecord> {
        let names = ["cpu", "CPU of the daemon", "s"];
        self.beside(row, row.cpu_target()?, names, |run| run.cpu)
    }

    /// Returns a record of what was measured beside the time of a row, against the first of the others.
    fn beside(
        &self,
        row: R,
        most: f64,
        [name, what, unit]: [&str; 3],
        of: impl Fn(&Run) -> Option<f64> + Copy,
    ) -> Option<BenchRecord> {
        let (against, _) = *row.targets().first()?;
        let measured = |contender: R::Contender| match self.find(row, contender) {
            Some(series) => series.beside(of),
            None => Measured::new(contender.to_string(), Vec::new()),
        };
        let ours = measured(R::OURS);
        let others = vec![Against::new(&ours, measured(against), Some(most))];
        Some(BenchRecord {
            bench: R::BENCH.to_string(),
            row: format!("{}-{name}", row.name()),
            work: format!("{}: {what}", row.what()),
            unit: unit.to_string(),
            round_seconds: 0.0,
            ours,
            others,
        })
    }

    #[allow(clippy::as_conversions, clippy::cast_precision_loss)] // A few rounds.
    fn round_seconds(&self, row: R) -> f64 {
        let took = self.series.iter().filter(|series| series.row == row);
        let took: f64 = took.map(|series| series.took).sum();
        (took / self.rounds().max(1) as f64).round()
    }

    fn rounds(&self) -> usize {
        let rounds = self
            .series
            .iter()
            .map(|s| s.samples.runs.len() + s.samples.failures.len());
        rounds.max().unwrap_or(0)
    }

    /// Returns a table of forerun's counters, and of memory.
    fn counters(&self, records: &[BenchRecord]) -> String {
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
        for record in records {
            let others = record.others.iter().map(|against| &against.theirs);
            for by in std::iter::once(&record.ours).chain(others) {
                if by.peak.is_some() {
                    table.add_row(counters_of(&record.work, by));
                }
            }
        }
        let bound = self.host.memory_bound();
        let ours = self
            .series
            .iter()
            .filter(|s| s.contender == R::OURS && s.row.size_target().is_none());
        let most = ours.filter_map(|series| series.samples.peak()).max();
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
}

/// Formats a table with a line for each comparison.
pub fn comparisons(records: &[BenchRecord]) -> Table {
    let mut table = new_table();
    table.set_header([
        "work", "forerun", "against", "theirs", "ratio", "low", "high", "at most", "target",
        "noise",
    ]);
    for column in [1, 3, 4, 5, 6, 7] {
        align_right(&mut table, column);
    }
    let number = |value: Option<f64>, digits: usize| {
        value.map_or("-".to_string(), |value| format!("{value:.digits$}"))
    };
    for record in records {
        for against in &record.others {
            let ratio = against.ratio.as_ref();
            let noise = ratio.and_then(|ratio| ratio.noisy.clone());
            table.add_row([
                record.work.clone(),
                number(record.ours.median, 3),
                against.theirs.name.clone(),
                number(against.theirs.median, 3),
                number(ratio.map(|ratio| ratio.median), 3),
                number(ratio.map(|ratio| ratio.low), 3),
                number(ratio.map(|ratio| ratio.high), 3),
                number(against.at_most, 2),
                against.target.text().to_string(),
                noise.unwrap_or_default(),
            ]);
        }
    }
    table
}

fn counters_of(work: &str, by: &Measured) -> [String; 11] {
    let number = |value: Option<u64>| value.map_or("-".to_string(), |n| n.to_string());
    [
        work.to_string(),
        by.name.clone(),
        number(by.counter("source_requests")),
        number(by.counter("source_bytes").map(|bytes| bytes / 1_000_000)),
        number(by.request_len().map(|bytes| bytes >> 10)),
        number(by.counter("decodes")),
        number(by.counter("metadata_decodes")),
        number(by.counter("repeated_decodes")),
        number(by.counter("decode_errors")),
        number(by.messages()),
        number(by.peak.map(|bytes| bytes >> 20)),
    ]
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

        fn cpu_target(self) -> Option<f64> {
            (self == Self::Cat).then_some(0.3)
        }
    }

    fn series(row: Row, contender: Contender, seconds: &[f64], found: &str) -> Series<Row> {
        let mut series = Series::new(row, contender);
        for &seconds in seconds {
            let run = Run {
                seconds,
                counters: Counters::from([("decodes".to_string(), 7)]),
                peak: Some(1 << 20),
                cpu: Some(seconds / 10.0),
                made: Some(100),
                found: found.to_string(),
            };
            series.push(Ok(run), 2.5);
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
        let outcome = report.outcome();
        let lines = outcome.records.iter().flat_map(|record| &record.others);
        let targets: Vec<&str> = lines.map(|against| against.target.text()).collect();
        let expected = [
            "met",
            "MISSED",
            "MISSED",
            "met",
            "met",
            "FOUND OTHER DATA",
            "not measured",
        ];
        assert_eq!(targets, expected);
        let text = &outcome.text;
        assert!(
            text.contains("0.400") && text.contains("SQUASHFS in here: XZ"),
            "{text}"
        );
        let rows: Vec<&str> = outcome.records.iter().map(|r| r.row.as_str()).collect();
        assert_eq!(rows, ["cat", "cat-cpu", "pack", "pack-size", "ls", "tree"]);
        let cat = &outcome.records[0];
        // Three runs of 2.5 s, and two of one round, in three rounds.
        assert_eq!(cat.round_seconds, 4.0);
        assert_eq!(cat.ours.counter("decodes"), Some(7));
        let error = outcome.verdict().unwrap_err().to_string();
        assert!(error.contains("other data"), "{error}");
        assert_eq!(outcome.facts["blocks"], 3);
        outcome.print(true).unwrap();
    }

    #[test]
    fn a_failed_run_is_counted_and_the_others_stay() {
        let mut failed = series(Row::Tree, Contender::Forerun, &[1.0], "x");
        failed.push(Err(anyhow::anyhow!("no such thing")), 1.0);
        let report = report(vec![
            failed,
            series(Row::Tree, Contender::Kernel, &[4.0], "x"),
        ]);
        let outcome = report.outcome();
        assert_eq!(outcome.records[0].ours.failures, ["no such thing"]);
        assert!(outcome.verdict().is_err());
        assert!(outcome.text.contains("2 rounds") && outcome.text.contains("0.250"));
    }
}
