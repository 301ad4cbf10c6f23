//! The runs of the romfs bench: their table, and their records.

use comfy_table::{CellAlignment, Table};
use forerun_measure::counters::Counters;
use forerun_measure::statistics::{median, middle};
use serde_json::json;

use super::host::Host;
use super::outcome::BenchOutcome;
use super::record::{Against, BenchRecord, Measured};

/// The name of the bench.
const BENCH: &str = "romfs";
/// How a mount reads whose image is in the page cache: the limit of what goes through FUSE.
const IN_MEMORY: &str = "image in the page cache";

/// One run.
pub struct Sample {
    /// Wall time.
    pub seconds: f64,
    /// The same with preparations.
    pub took: f64,
    /// The counters of the daemon; empty where there was none.
    pub counters: Counters,
}

/// The runs of one test in one way.
pub struct RomfsSeries {
    test: &'static str,
    what: &'static str,
    how: String,
    samples: Vec<Sample>,
}

impl RomfsSeries {
    /// Creates a series without runs.
    pub const fn new(test: &'static str, what: &'static str, how: String) -> Self {
        Self {
            test,
            what,
            how,
            samples: Vec::new(),
        }
    }

    /// Creates a series of test 2 with the image in the page cache, without runs.
    pub fn in_memory(user: &str) -> Self {
        Self::new(
            "2",
            "md5sum MOUNT/FILE",
            format!("{user} mount, {IN_MEMORY}"),
        )
    }

    /// Adds a run.
    pub fn push(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    fn measured(&self, name: &str) -> Measured {
        let samples = self.samples.iter();
        Measured {
            counters: Measured::counters(samples.clone().map(|sample| &sample.counters)),
            ..Measured::new(name, samples.map(|sample| sample.seconds).collect())
        }
    }

    fn round_seconds(&self) -> f64 {
        let mut took: Vec<f64> = self.samples.iter().map(|sample| sample.took).collect();
        median(&mut took)
    }

    fn seconds(&self) -> f64 {
        let mut seconds: Vec<f64> = self.samples.iter().map(|sample| sample.seconds).collect();
        median(&mut seconds)
    }

    /// Returns the median of a counter; `None` where no daemon counted.
    fn counter(&self, name: &str) -> Option<u64> {
        let told = |sample: &Sample| sample.counters.get(name).copied();
        middle(self.samples.iter().filter_map(told))
    }
}

/// All of it.
pub struct RomfsReport {
    image_len: u64,
    cold: bool,
    series: Vec<RomfsSeries>,
}

impl RomfsReport {
    /// Creates a report. The first series is the base for the others of test 2.
    pub const fn new(image_len: u64, cold: bool, series: Vec<RomfsSeries>) -> Self {
        Self {
            image_len,
            cold,
            series,
        }
    }

    /// Compares a series with its base: in test 2 the image itself, in test 3 legacy blocks of the same
    /// user.
    fn ratio(&self, series: &RomfsSeries) -> Option<f64> {
        let base = match series.test {
            "2" => self.series.first()?,
            "3" => {
                let user = series.how.split_once(',')?.0;
                let legacy = format!("{user}, nolargeblocks");
                let same = |other: &&RomfsSeries| other.test == "3" && other.how == legacy;
                self.series.iter().find(same)?
            }
            _ => return None,
        };
        Some(series.seconds() / base.seconds())
    }

    /// Formats a table for people.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header([
            "test", "what", "how", "seconds", "ratio", "requests", "bytes",
        ]);
        for column in table.column_iter_mut().skip(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for series in &self.series {
            let number = |value: Option<u64>| value.map_or("-".to_string(), |n| n.to_string());
            let ratio = self.ratio(series);
            table.add_row([
                series.test.to_string(),
                series.what.to_string(),
                series.how.clone(),
                format!("{:.3}", series.seconds()),
                ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}")),
                number(series.counter("source_requests")),
                number(series.counter("source_bytes")),
            ]);
        }
        let caches = match self.cold {
            true => "all caches dropped before each run",
            false => "only the image's own pages dropped before each run, as this is not root",
        };
        format!(
            "{table}\n\nMedians. Image of tests 1 and 2: {} bytes; {caches}.\n\
             Ratios: test 2 to test 1, test 3 to legacy blocks. Bound for the requests of test 2 \
             with large blocks: {}.",
            self.image_len,
            self.request_bound()
        )
    }

    /// Makes records of the runs: large blocks against what they are compared with.
    pub fn outcome(self, host: Host) -> BenchOutcome {
        let facts = json!({
            "bench": BENCH,
            "image_len": self.image_len,
            "caches_dropped": self.cold,
            "request_bound": self.request_bound(),
        });
        BenchOutcome {
            records: self.records(),
            text: self.table(),
            facts,
            host,
            tree: format!("image of {} bytes", self.image_len),
        }
    }

    fn records(&self) -> Vec<BenchRecord> {
        let large = self.series.iter().filter(|series| {
            let how = series.how.split_once(", ");
            how.is_some_and(|(_, blocks)| blocks == "largeblocks")
        });
        large.map(|series| self.record(series)).collect()
    }

    fn record(&self, series: &RomfsSeries) -> BenchRecord {
        let user = series.how.split_once(", ").map_or("", |(user, _)| user);
        let image = self.series.iter().filter(|other| other.test == "1");
        let legacy = self.series.iter().filter(|other| {
            other.test == series.test && other.how == format!("{user}, nolargeblocks")
        });
        let limit = self
            .series
            .iter()
            .filter(|other| other.how == format!("{user}, {IN_MEMORY}"));
        let (row, work, against): (_, _, Vec<&RomfsSeries>) = match series.test {
            "2" => (
                "file",
                "the file in the image",
                image.chain(limit).chain(legacy).collect(),
            ),
            _ => ("walk", "find over 9,600 files", legacy.collect()),
        };
        let ours = series.measured("forerun");
        let all = std::iter::once(series).chain(against.iter().copied());
        let took: f64 = all.map(RomfsSeries::round_seconds).sum();
        BenchRecord {
            bench: BENCH.to_string(),
            row: format!("{row}-{}", user.split(' ').next().unwrap_or_default()),
            work: format!("{work}, {user}"),
            unit: "s".to_string(),
            round_seconds: took.round(),
            others: against
                .into_iter()
                .map(|other| {
                    let name = match other.test {
                        "1" => "the image itself",
                        _ if other.how.ends_with(IN_MEMORY) => "the same, image in the page cache",
                        _ => "the same with nolargeblocks",
                    };
                    Against::new(&ours, other.measured(name), None)
                })
                .collect(),
            ours,
        }
    }

    /// Returns the bound on requests: 1 MiB each on average, and ten more for metadata.
    const fn request_bound(&self) -> u64 {
        self.image_len.div_ceil(1 << 20) + 10
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(test: &'static str, how: &str, seconds: &[f64]) -> RomfsSeries {
        let mut series = RomfsSeries::new(test, "what", how.to_string());
        for &seconds in seconds {
            let counters = Counters::from([("source_requests".to_string(), 7)]);
            series.push(Sample {
                seconds,
                took: seconds + 1.0,
                counters,
            });
        }
        series
    }

    #[test]
    fn ratios_are_to_the_right_base() {
        let report = RomfsReport::new(
            250_000_000,
            true,
            vec![
                series("1", "no mount", &[1.0, 3.0, 2.0]),
                series("2", "root mount, largeblocks", &[3.0]),
                series("2", "root mount, image in the page cache", &[2.5]),
                series("3", "root mount, largeblocks", &[1.0]),
                series("3", "root mount, nolargeblocks", &[4.0]),
                series("3", "rootless mount, largeblocks", &[8.0]),
                series("3", "rootless mount, nolargeblocks", &[8.0]),
            ],
        );
        let ratios: Vec<Option<f64>> = report.series.iter().map(|s| report.ratio(s)).collect();
        let expected = [
            None,
            Some(1.5),
            Some(1.25),
            Some(0.25),
            Some(1.0),
            Some(1.0),
            Some(1.0),
        ];
        assert_eq!(ratios, expected);
        assert!(report.table().contains("1.50"), "{}", report.table());
        let records = report.records();
        let rows: Vec<&str> = records.iter().map(|r| r.row.as_str()).collect();
        assert_eq!(rows, ["file-root", "walk-root", "walk-rootless"]);
        assert_eq!(records[0].ours.counter("source_requests"), Some(7));
        assert_eq!(records[0].others[0].theirs.name, "the image itself");
        assert_eq!(
            records[0].others[1].theirs.name,
            "the same, image in the page cache"
        );
        assert_eq!(records[0].others[1].ratio.as_ref().unwrap().median, 1.2);
        assert_eq!(records[0].round_seconds, 11.0, "10.5");
        assert_eq!(records[1].others[0].ratio.as_ref().unwrap().median, 0.25);
        assert_eq!(report.request_bound(), 249);
    }
}
