//! The figures that are kept in docs/figures: records, and the runs that they are of.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::peers::PeerVersion;
use crate::bench::{BENCHES, BenchRecord};
use crate::figures::DIR;

/// The file below [`DIR`].
const FILE: &str = "benchmarks.json";

/// All that is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptFigures {
    /// Runs by the names that records have for them.
    pub runs: BTreeMap<String, ReportRun>,
    /// The records, in the order of the benches.
    pub records: Vec<KeptRecord>,
}

/// One run of one bench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportRun {
    /// The date and time of its start.
    pub date: String,
    /// Rounds.
    pub rounds: u32,
    /// The machine.
    pub machine: Value,
    /// The tree or images that were measured.
    pub tree: String,
    /// The other programs.
    pub peers: Vec<PeerVersion>,
    /// Other work of the machine during the run.
    pub noise: Value,
    /// The reason why no document shows its figures, if there is one.
    pub disturbed: Option<String>,
}

/// A record, and its run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptRecord {
    /// The name of the run.
    pub run: String,
    /// The record.
    #[serde(flatten)]
    pub record: BenchRecord,
}

impl KeptFigures {
    /// Reads the figures of the tree; none where it has no file of them.
    pub fn of_tree(root: &Path) -> Result<Option<Self>> {
        let path = root.join(DIR).join(FILE);
        path.exists().then(|| Self::read(&path)).transpose()
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    /// Writes the figures of the tree.
    pub fn write(&self, root: &Path) -> Result<()> {
        let path = root.join(DIR).join(FILE);
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    /// Puts the records of a run in place of earlier ones of the same rows; the other rows stay with the runs that
    /// they are of. Returns the rows of which an undisturbed record stays, as this run was disturbed.
    pub fn merge(&mut self, name: &str, run: ReportRun, records: Vec<BenchRecord>) -> Vec<String> {
        let is_disturbed = run.disturbed.is_some();
        // Its date has minutes, and another run may have begun in the same one.
        let mut name = name.to_string();
        while self.runs.contains_key(&name) {
            name += ", again";
        }
        self.runs.insert(name.clone(), run);
        let mut kept = Vec::new();
        for record in records {
            if record.ours.runs.is_empty() {
                continue;
            }
            let is_same = |old: &&mut KeptRecord| {
                old.record.bench == record.bench && old.record.row == record.row
            };
            let new = KeptRecord {
                run: name.clone(),
                record: record.clone(),
            };
            match self.records.iter_mut().find(is_same) {
                None => self.records.push(new),
                Some(old) => {
                    let was = self.runs.get(&old.run);
                    if is_disturbed && was.is_some_and(|run| run.disturbed.is_none()) {
                        kept.push(format!("{}/{}", record.bench, record.row));
                    } else {
                        *old = new;
                    }
                }
            }
        }
        let place = |of: &KeptRecord| BENCHES.iter().position(|bench| *bench == of.record.bench);
        self.records.sort_by_key(place);
        let used: BTreeSet<&String> = self.records.iter().map(|record| &record.run).collect();
        self.runs.retain(|run, _| used.contains(run));
        kept
    }

    /// Returns the run of a record.
    pub fn run_of(&self, record: &KeptRecord) -> Option<&ReportRun> {
        self.runs.get(&record.run)
    }

    /// Returns the records of a bench that documents show.
    pub fn shown(&self, bench: &str) -> impl Iterator<Item = &KeptRecord> {
        let of_bench = self.records.iter();
        of_bench.filter(move |of| {
            let run = self.run_of(of);
            of.record.bench == bench && run.is_some_and(|run| run.disturbed.is_none())
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::bench::{Against, Measured};

    /// Creates a record of one comparison.
    pub fn record(bench: &str, row: &str, ours: &[f64], theirs: &[f64]) -> BenchRecord {
        let ours = Measured::new("forerun", ours.to_vec());
        let theirs = Measured::new("kernel", theirs.to_vec());
        BenchRecord {
            bench: bench.to_string(),
            row: row.to_string(),
            work: format!("work of {row}"),
            unit: "s".to_string(),
            round_seconds: 7.0,
            others: vec![Against::new(&ours, theirs, Some(0.6))],
            ours,
        }
    }

    /// Creates a run.
    pub fn run(date: &str, disturbed: Option<&str>) -> ReportRun {
        ReportRun {
            date: date.to_string(),
            rounds: 3,
            machine: serde_json::json!({ "cpu": "a CPU", "cpus": 2, "kernel": "6.18" }),
            tree: "tree".to_string(),
            peers: Vec::new(),
            noise: Value::Null,
            disturbed: disturbed.map(str::to_string),
        }
    }

    const ONE: &[f64] = &[1.0, 1.0, 1.0];
    const TWO: &[f64] = &[2.0, 2.0, 2.0];

    #[test]
    fn figures_come_back_from_json_as_they_were() {
        let mut kept = KeptFigures::default();
        let mut old = run("d", None);
        old.peers = super::super::peers::look();
        kept.merge("a", old, vec![record("exfat", "read", &[0.25, 0.5], TWO)]);
        let text = serde_json::to_string_pretty(&kept).unwrap();
        assert_eq!(serde_json::from_str::<KeptFigures>(&text).unwrap(), kept);
    }

    #[test]
    fn two_runs_of_one_minute_stay_apart() {
        let mut kept = KeptFigures::default();
        let of = |row| vec![record("exfat", row, ONE, TWO)];
        kept.merge("a", run("d", Some("others")), of("read"));
        kept.merge("a", run("d", None), of("write"));
        let shown: Vec<&str> = kept
            .shown("exfat")
            .map(|of| of.record.row.as_str())
            .collect();
        assert_eq!(shown, ["write"]);
        assert_eq!(kept.runs.len(), 2);
    }

    #[test]
    fn a_run_of_some_rows_keeps_the_others_with_their_run() {
        let mut kept = KeptFigures::default();
        let two = vec![
            record("exfat", "read", ONE, TWO),
            record("exfat", "write", ONE, TWO),
        ];
        kept.merge("old", run("d1", None), two);
        kept.merge(
            "new",
            run("d2", None),
            vec![record("exfat", "write", TWO, TWO)],
        );
        kept.merge(
            "first",
            run("d3", None),
            vec![record("romfs", "file", ONE, TWO)],
        );
        let records = kept.records.iter();
        let names = records.map(|of| (of.run.as_str(), of.record.row.as_str()));
        let names: Vec<_> = names.collect();
        assert_eq!(
            names,
            [("first", "file"), ("old", "read"), ("new", "write")]
        );
        kept.merge(
            "newer",
            run("d4", None),
            vec![record("exfat", "read", ONE, TWO)],
        );
        assert!(!kept.runs.contains_key("old"));
        // A row that could not be measured replaces nothing.
        kept.merge(
            "none",
            run("d5", None),
            vec![record("exfat", "read", &[], TWO)],
        );
        assert_eq!(kept.records[1].run, "newer");
    }

    #[test]
    fn a_disturbed_run_replaces_no_undisturbed_record_and_is_not_shown() {
        let mut kept = KeptFigures::default();
        let new = || vec![record("exfat", "read", ONE, TWO)];
        kept.merge("a", run("d1", Some("busy")), new());
        assert_eq!(kept.shown("exfat").count(), 0);
        kept.merge("b", run("d2", None), new());
        assert_eq!(kept.shown("exfat").count(), 1);
        let stays = kept.merge("c", run("d3", Some("busy")), new());
        assert_eq!(stays, ["exfat/read"]);
        assert_eq!(kept.records[0].run, "b");
        assert!(!kept.runs.contains_key("c"));
    }
}
