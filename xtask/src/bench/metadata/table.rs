//! Medians of the ways, and the two ways to print them.

use anyhow::{Result, ensure};
use forerun_measure::counters::Counters;
use forerun_measure::samples::Samples;
use serde_json::{Value, json};

use super::ways::Way;
use crate::bench::host::Host;
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
    samples: Samples<ListingRun>,
}

impl MetadataSeries {
    /// Creates a series without runs.
    pub const fn new(way: Way) -> Self {
        Self {
            way,
            samples: Samples::new(),
        }
    }

    /// Adds a run, or why there is none.
    pub fn push(&mut self, run: Result<ListingRun>) {
        self.samples.push(run);
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
    /// Prints to standard output. Fails where a run did, or where not all ways found the same.
    pub fn print(&self, as_json: bool) -> Result<()> {
        match as_json {
            true => println!("{}", self.json()),
            false => println!("{}", self.table()),
        }
        let failures: usize = self.series.iter().map(|s| s.samples.failures.len()).sum();
        ensure!(failures == 0, "{failures} runs failed, as said above");
        let mut found: Vec<&str> = self.runs().map(|run| run.found.as_str()).collect();
        found.sort_unstable();
        found.dedup();
        ensure!(found.len() < 2, "not the same was found: {found:?}");
        Ok(())
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

    fn json(&self) -> String {
        let series: Vec<Value> = self.series.iter().map(series_json).collect();
        let report = json!({
            "bench": "metadata",
            "host": self.host.json(),
            "tree": self.tree,
            "rounds": self.rounds,
            "series": series,
        });
        format!("{report:#}")
    }
}

fn series_json(series: &MetadataSeries) -> Value {
    let of =
        |value: fn(&ListingRun) -> Value| series.samples.runs.iter().map(value).collect::<Vec<_>>();
    let mut json = json!({
        "image": series.way.image_name(),
        "read_by": series.way.reader_name(),
        "mount_seconds": of(|run| run.mount.into()),
        "uncached_seconds": of(|run| run.uncached.into()),
        "cached_seconds": of(|run| run.cached.into()),
        "counters": of(|run| json!(run.counters)),
        "found": of(|run| run.found.as_str().into()),
        "request_bytes": series.request_len(),
        "failures": series.samples.errors(),
    });
    for (name, value) in TIMES {
        json[format!("{name}_ms_median")] = json!(series.milliseconds(value));
    }
    json
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
            kernel.push(Ok(run(mount, "9 lines", &[])));
        }
        let mut fuse = MetadataSeries::new(ways[6]);
        let counted = [("source_requests", 4), ("source_bytes", 4 << 17)];
        fuse.push(Ok(run(0.5, "9 lines", &counted)));
        let report = report(vec![kernel, fuse]);
        report.print(false).unwrap();
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["series"][0]["mount_ms_median"], 20.0);
        assert_eq!(json["series"][0]["together_ms_median"], 520.0);
        assert_eq!(json["series"][0]["request_bytes"], Value::Null);
        assert_eq!(json["series"][1]["request_bytes"], 1 << 17);
        let table = report.table();
        assert!(table.contains("1000") && table.contains(" 128"), "{table}");
    }

    #[test]
    fn failures_and_different_listings_are_told() {
        let ways = all();
        let mut one = MetadataSeries::new(ways[0]);
        one.push(Ok(run(1.0, "9 lines", &[])));
        let mut other = MetadataSeries::new(ways[1]);
        other.push(Ok(run(1.0, "8 lines", &[])));
        let differ = report(vec![one, other]).print(false).unwrap_err();
        assert!(differ.to_string().contains("not the same"), "{differ}");
        let mut failed = MetadataSeries::new(ways[0]);
        failed.push(Err(anyhow::anyhow!("no such thing")));
        let failed = report(vec![failed]);
        assert!(failed.json().contains("no such thing"));
        assert!(failed.print(true).is_err());
    }
}
