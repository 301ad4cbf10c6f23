//! Medians, ratios, and the two ways to print them.

use comfy_table::{CellAlignment, Table};
use forerun_measure::counters::Counters;
use forerun_measure::statistics::{median, middle};
use serde_json::{Value, json};

/// One run.
pub struct Sample {
    /// Wall time.
    pub seconds: f64,
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

    /// Adds a run.
    pub fn push(&mut self, sample: Sample) {
        self.samples.push(sample);
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

    /// Formats JSON for programs.
    pub fn json(&self) -> String {
        let series: Vec<Value> = self
            .series
            .iter()
            .map(|series| {
                let seconds: Vec<f64> = series.samples.iter().map(|s| s.seconds).collect();
                let counters: Vec<&Counters> = series.samples.iter().map(|s| &s.counters).collect();
                json!({
                    "test": series.test,
                    "what": series.what,
                    "how": series.how,
                    "seconds_median": series.seconds(),
                    "ratio": self.ratio(series),
                    "seconds": seconds,
                    "counters": counters,
                })
            })
            .collect();
        let report = json!({
            "bench": "romfs",
            "image_len": self.image_len,
            "caches_dropped": self.cold,
            "request_bound": self.request_bound(),
            "series": series,
        });
        format!("{report:#}")
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
            series.push(Sample { seconds, counters });
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
                series("3", "root mount, largeblocks", &[1.0]),
                series("3", "root mount, nolargeblocks", &[4.0]),
                series("3", "rootless mount, largeblocks", &[8.0]),
                series("3", "rootless mount, nolargeblocks", &[8.0]),
            ],
        );
        let ratios: Vec<Option<f64>> = report.series.iter().map(|s| report.ratio(s)).collect();
        let expected = [None, Some(1.5), Some(0.25), Some(1.0), Some(1.0), Some(1.0)];
        assert_eq!(ratios, expected);
        assert!(report.table().contains("1.50"), "{}", report.table());
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["series"][1]["counters"][0]["source_requests"], 7);
        assert_eq!(json["request_bound"], 249);
    }
}
