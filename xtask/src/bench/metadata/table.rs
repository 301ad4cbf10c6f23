//! Medians of the ways, and the two ways to print them.

use anyhow::Result;
use forerun_measure::counters::Counters;
use forerun_measure::samples::Samples;
use serde_json::json;

use super::ways::{By, Way};
use crate::bench::host::Host;
use crate::bench::outcome::BenchOutcome;
use crate::bench::record::{Against, BenchRecord, Measured};
use crate::bench::table::{align_right, new_table};

/// One run of one way: seconds.
#[derive(Debug)]
pub struct ListingRun {
    /// Of mounting, from cold caches.
    pub mount: f64,
    /// Of the first listing, right after that.
    pub uncached: f64,
    /// Of the second.
    pub cached: f64,
    /// The counters of forerun; empty for others.
    pub counters: Counters,
    /// The result: the same in all ways.
    pub found: String,
}

/// The runs of one way.
pub struct MetadataSeries {
    /// Which.
    pub way: Way,
    /// Seconds that the runs took, with preparations.
    took: f64,
    samples: Samples<ListingRun>,
}

impl MetadataSeries {
    /// Creates a series without runs.
    pub const fn new(way: Way) -> Self {
        Self {
            way,
            took: 0.0,
            samples: Samples::new(),
        }
    }

    /// Adds a run, or why there is none, and the seconds that it took with its preparations.
    pub fn push(&mut self, run: Result<ListingRun>, took: f64) {
        self.took += took;
        self.samples.push(run);
    }

    /// Sums up the runs, which have to find `expected`: all images are of one tree.
    fn measured(&self, of: Time, expected: Option<&str>) -> Measured {
        let runs = &self.samples.runs;
        let found = runs.iter().map(|run| run.found.as_str());
        let expected = expected.filter(|_| !runs.is_empty());
        Measured {
            counters: Measured::counters(runs.iter().map(|run| &run.counters)),
            failures: self.samples.errors(),
            ..Measured::new(self.way.reader_name(), runs.iter().map(of).collect())
        }
        .with_found(found.chain(expected))
    }

    fn milliseconds(&self, of: Time) -> Option<f64> {
        self.samples.time(|run| of(run) * 1e3)
    }

    fn counter(&self, name: &str) -> Option<u64> {
        self.samples.counter(|run| &run.counters, name)
    }

    fn request_len(&self) -> Option<u64> {
        self.samples.request_len(|run| &run.counters)
    }
}

type Time = fn(&ListingRun) -> f64;

/// The name of the bench.
const BENCH: &str = "metadata";
/// This project.
const OURS: &str = "forerun FUSE";
/// The times, and what they are of.
const TIMES: [(&str, Time); 4] = [
    ("mount", |run| run.mount),
    ("uncached", |run| run.uncached),
    ("together", |run| run.mount + run.uncached),
    ("cached", |run| run.cached),
];

/// Counters, and their names in the table.
const COUNTERS: [(&str, &str); 4] = [
    ("source_requests", "requests"),
    ("fuse_lookup", "lookup"),
    ("fuse_getxattr", "getxattr"),
    ("fuse_readdirplus", "readdirplus"),
];

/// All of it.
pub struct MetadataReport {
    /// The machine.
    pub host: Host,
    /// The tree, for people.
    pub tree: String,
    /// Rounds.
    pub rounds: u32,
    /// The runs.
    pub series: Vec<MetadataSeries>,
}

impl MetadataReport {
    /// Makes records of the runs: a row for each image and time, all ways against forerun's FUSE.
    pub fn outcome(self) -> BenchOutcome {
        BenchOutcome {
            records: self.records(),
            text: self.table(),
            facts: json!({ "bench": BENCH }),
            host: self.host,
            tree: self.tree,
        }
    }

    fn records(&self) -> Vec<BenchRecord> {
        let mut images: Vec<(&str, &str)> = Vec::new();
        for MetadataSeries { way, .. } in &self.series {
            if !images.contains(&(way.image_word(), way.image_name())) {
                images.push((way.image_word(), way.image_name()));
            }
        }
        let rows = images.iter().flat_map(|image| {
            let times = TIMES.iter();
            times.map(move |(name, of)| self.record(*image, name, *of))
        });
        rows.collect()
    }

    fn record(&self, (word, image): (&str, &str), time: &str, of: Time) -> BenchRecord {
        let expected = self.runs().next().map(|run| run.found.as_str());
        let all = self.series.iter();
        let all = all.filter(|series| series.way.image_word() == word);
        let took: f64 = match time {
            "mount" => all.clone().map(|series| series.took).sum(),
            _ => 0.0,
        };
        let (ours, others): (Vec<_>, Vec<_>) = all.partition(|series| series.way.by == By::Fuse);
        let ours = match ours.first() {
            Some(series) => series.measured(of, expected),
            None => Measured::new(OURS, Vec::new()),
        };
        let others = others.iter();
        BenchRecord {
            bench: BENCH.to_string(),
            row: format!("{word}-{time}"),
            work: format!("{image}: {time}"),
            unit: "s".to_string(),
            round_seconds: (took / f64::from(self.rounds)).round(),
            others: others
                .map(|series| Against::new(&ours, series.measured(of, expected), None))
                .collect(),
            ours,
        }
    }

    fn runs(&self) -> impl Iterator<Item = &ListingRun> {
        self.series.iter().flat_map(|series| &series.samples.runs)
    }

    fn table(&self) -> String {
        let mut table = new_table();
        let times = TIMES.iter().map(|(name, _)| *name);
        let counters = COUNTERS.iter().map(|(_, name)| *name);
        let head = ["image", "read by"].into_iter().chain(times);
        table.set_header(head.chain(counters).chain(["KiB each"]));
        for column in 2..TIMES.len() + COUNTERS.len() + 3 {
            align_right(&mut table, column);
        }
        let number = |value: Option<u64>| value.map_or("-".to_string(), |n| n.to_string());
        for series in &self.series {
            let mut row = vec![
                series.way.image_name().to_string(),
                series.way.reader_name(),
            ];
            row.extend(TIMES.iter().map(|(_, of)| {
                let value = series.milliseconds(*of);
                value.map_or("-".to_string(), |value| format!("{value:.0}"))
            }));
            row.extend(
                COUNTERS
                    .iter()
                    .map(|(name, _)| number(series.counter(name))),
            );
            row.push(number(series.request_len().map(|bytes| bytes >> 10)));
            table.add_row(row);
        }
        let found = self.runs().next().map_or("nothing", |run| &run.found);
        format!(
            "{}tree: {}\nls -lR of it: {found}; {} rounds\n\n{table}\n\nMedians, in milliseconds. All \
             caches are dropped, then the image is mounted, listed\n(uncached) and listed again \
             (cached), as root. Counters are forerun's, of both listings.",
            self.host.text(),
            self.tree,
            self.rounds,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::metadata::ways::all;

    fn run(mount: f64, found: &str, counters: &[(&str, u64)]) -> ListingRun {
        ListingRun {
            mount,
            uncached: 0.5,
            cached: 0.125,
            counters: counters
                .iter()
                .map(|(k, v)| ((*k).to_string(), *v))
                .collect(),
            found: found.to_string(),
        }
    }

    fn report(series: Vec<MetadataSeries>) -> MetadataReport {
        MetadataReport {
            host: Host {
                machine: forerun_measure::machine::Machine::look(),
                drivers: Vec::new(),
                programs: Vec::new(),
            },
            tree: "tree".to_string(),
            rounds: 1,
            series,
        }
    }

    #[test]
    fn times_and_counters_are_there() {
        let ways = all();
        let mut kernel = MetadataSeries::new(ways[0]);
        for mount in [0.01, 0.03, 0.02] {
            kernel.push(Ok(run(mount, "9 lines", &[])), 2.0);
        }
        let mut fuse = MetadataSeries::new(ways[6]);
        let counted = [("source_requests", 4), ("source_bytes", 4 << 17)];
        fuse.push(Ok(run(0.5, "9 lines", &counted)), 3.0);
        let report = report(vec![kernel, fuse]);
        let table = report.table();
        assert!(table.contains("1000") && table.contains(" 128"), "{table}");
        let outcome = report.outcome();
        outcome.verdict().unwrap();
        let rows: Vec<&str> = outcome.records.iter().map(|r| r.row.as_str()).collect();
        let expected = [
            "mkfs-mount",
            "mkfs-uncached",
            "mkfs-together",
            "mkfs-cached",
        ];
        assert_eq!(rows, expected);
        let (mount, together) = (&outcome.records[0], &outcome.records[2]);
        // Runs of one round, three of 2 s and one of 3 s.
        assert_eq!((mount.round_seconds, together.round_seconds), (9.0, 0.0));
        assert_eq!(together.others[0].theirs.median, Some(0.52));
        assert_eq!(together.ours.request_len(), Some(1 << 17));
    }

    #[test]
    fn failures_and_different_listings_are_told() {
        let ways = all();
        let mut one = MetadataSeries::new(ways[0]);
        one.push(Ok(run(1.0, "9 lines", &[])), 1.0);
        let mut other = MetadataSeries::new(ways[6]);
        other.push(Ok(run(1.0, "8 lines", &[])), 1.0);
        let differ = report(vec![one, other]).outcome().verdict().unwrap_err();
        assert!(differ.to_string().contains("failed"), "{differ}");
        // Two images of one tree.
        let mut one = MetadataSeries::new(ways[0]);
        one.push(Ok(run(1.0, "9 lines", &[])), 1.0);
        let is_other = |way: &&Way| way.image_word() != ways[0].image_word();
        let mut other = MetadataSeries::new(*ways.iter().find(is_other).unwrap());
        other.push(Ok(run(1.0, "8 lines", &[])), 1.0);
        let outcome = report(vec![one, other]).outcome();
        assert!(outcome.verdict().is_err());
        let text = outcome.json().unwrap().to_string();
        assert!(
            text.contains("runs found different data: 8 lines, 9 lines"),
            "{text}"
        );
        let mut failed = MetadataSeries::new(ways[0]);
        failed.push(Err(anyhow::anyhow!("no such thing")), 1.0);
        let failed = report(vec![failed]).outcome();
        assert_eq!(
            failed.records[0].others[0].theirs.failures,
            ["no such thing"]
        );
        assert!(failed.verdict().is_err());
    }
}
