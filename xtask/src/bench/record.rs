//! Records: how long the contenders of a row took. Benches return them; tables, JSON, charts and documents
//! are made from them.

use std::collections::BTreeSet;

use forerun_measure::counters::Counters;
use forerun_measure::statistics::{Comparison, LEAST_ROUNDS, Summary, middle};
use serde::{Deserialize, Serialize};

/// The share by which the ratios of the rounds may differ before the ratio counts as noisy.
pub const NOISE: f64 = 0.15;

/// A row of a bench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchRecord {
    /// The name of the bench.
    pub bench: String,
    /// The name of the row, unique within the bench.
    pub row: String,
    /// The work, for people.
    pub work: String,
    /// The unit of what was measured.
    pub unit: String,
    /// Seconds that one round took, with all contenders and preparations; 0 where another record counts it.
    pub round_seconds: f64,
    /// This project.
    pub ours: Measured,
    /// The others, each with the ratio of this project to it.
    pub others: Vec<Against>,
}

/// The runs of one contender.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// The middle of the runs; nothing where all failed.
    pub median: Option<f64>,
    /// The distance between the first and the third quartile.
    pub spread: Option<f64>,
    /// The runs, in the order of the rounds.
    pub runs: Vec<f64>,
    /// Medians of the counters.
    pub counters: Counters,
    /// The most memory of all runs, in bytes.
    pub peak: Option<u64>,
    /// The data that all runs found; nothing where they differ.
    pub found: Option<String>,
    /// The errors of runs that failed.
    pub failures: Vec<String>,
}

/// Another contender, and the ratio of this project to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// Its runs.
    pub theirs: Measured,
    /// The ratio; nothing where one of both has no run.
    pub ratio: Option<Ratio>,
    /// The largest ratio that is no defect; nothing where there is no target.
    pub at_most: Option<f64>,
    /// The result against that target.
    pub target: Target,
}

/// The time of this project as a share of that of another contender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The ratio of the medians.
    pub median: f64,
    /// The lowest ratio of a round.
    pub low: f64,
    /// The highest.
    pub high: f64,
    /// The verdict of `forerun-measure`: faster, slower, undecided or too_few_rounds.
    pub verdict: String,
    /// The reason why the figure is noisy, if it is.
    pub noisy: Option<String>,
}

/// The result against a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// There is none.
    None,
    /// The ratio is not above it.
    Met,
    /// The ratio is above it.
    Missed,
    /// One of both has no run.
    NotMeasured,
    /// Both read different data.
    OtherData,
}

impl Target {
    /// Returns the words for tables.
    pub const fn text(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::NotMeasured => "not measured",
            Self::OtherData => "FOUND OTHER DATA",
        }
    }
}

impl Measured {
    /// Sums up runs, in the order of the rounds.
    pub fn new(name: impl Into<String>, runs: Vec<f64>) -> Self {
        let summary = Summary::of(&runs);
        Self {
            name: name.into(),
            median: summary.map(|summary| rounded(summary.median)),
            spread: summary.map(|summary| rounded(summary.spread)),
            runs: runs.into_iter().map(rounded).collect(),
            ..Self::default()
        }
    }

    /// Sets the data that the runs found. Where they differ, that is one more failure.
    pub fn with_found<'f>(mut self, all: impl Iterator<Item = &'f str>) -> Self {
        let all = Vec::from_iter(all.collect::<BTreeSet<_>>());
        match all.as_slice() {
            [] => {}
            [found] => self.found = Some((*found).to_string()),
            differ => {
                let differ = differ.join(", ");
                self.failures
                    .push(format!("runs found different data: {differ}"));
            }
        }
        self
    }

    /// Returns the medians of all counters that a run has.
    pub fn counters<'c>(runs: impl Iterator<Item = &'c Counters> + Clone) -> Counters {
        let mut medians = Counters::new();
        let counted = runs.filter(|counters| !counters.is_empty());
        for name in counted.clone().flat_map(|counters| counters.keys()) {
            if !medians.contains_key(name) {
                let all = counted.clone().map(|of| of.get(name).copied().unwrap_or(0));
                medians.insert(name.clone(), middle(all).unwrap_or(0));
            }
        }
        medians
    }

    /// Returns a counter; nothing where no run has counters.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let counter = self.counters.get(name).copied().unwrap_or(0);
        (!self.counters.is_empty()).then_some(counter)
    }

    /// Returns the mean number of bytes of a request to the image.
    pub fn request_len(&self) -> Option<u64> {
        let requests = self.counter("source_requests")?;
        self.counter("source_bytes")?.checked_div(requests)
    }

    /// Returns the number of messages of the FUSE protocol.
    pub fn messages(&self) -> Option<u64> {
        let named = self.counters.iter();
        let named = named.filter(|(name, _)| name.starts_with("fuse_"));
        Some(named.map(|(_, count)| count).sum()).filter(|count| *count > 0)
    }
}

impl Against {
    /// Compares this project with another contender.
    pub fn new(ours: &Measured, theirs: Measured, at_most: Option<f64>) -> Self {
        let ratio = Ratio::of(ours, &theirs);
        let target = match (&ratio, at_most) {
            (None, _) => Target::NotMeasured,
            _ if ours.found != theirs.found => Target::OtherData,
            (_, None) => Target::None,
            (Some(ratio), Some(most)) if ratio.median <= most => Target::Met,
            _ => Target::Missed,
        };
        Self {
            theirs,
            ratio,
            at_most,
            target,
        }
    }
}

impl Ratio {
    /// Returns the ratio of the medians, and the lowest and highest of the rounds: a slow minute of the
    /// machine meets both contenders of a round.
    fn of(ours: &Measured, theirs: &Measured) -> Option<Self> {
        let summaries = (Summary::of(&ours.runs)?, Summary::of(&theirs.runs)?);
        let comparison = Comparison::of(&summaries.0, &summaries.1);
        let rounds = ours.runs.iter().zip(&theirs.runs);
        let rounds = rounds.map(|(ours, theirs)| ours / theirs.max(1e-9));
        let low = rounds.clone().fold(comparison.ratio, f64::min);
        let high = rounds.fold(comparison.ratio, f64::max);
        let failed = ours.failures.len() + theirs.failures.len();
        let noisy = if failed > 0 {
            Some(format!("{failed} runs failed"))
        } else if ours.runs.len().min(theirs.runs.len()) < LEAST_ROUNDS {
            Some(format!("fewer than {LEAST_ROUNDS} rounds"))
        } else if high > low * (1.0 + NOISE) {
            Some(format!(
                "the rounds differ by {:.0} %",
                (high / low - 1.0) * 100.0
            ))
        } else {
            None
        };
        Some(Self {
            median: rounded(comparison.ratio),
            low: rounded(low),
            high: rounded(high),
            verdict: comparison.verdict.name().to_string(),
            noisy,
        })
    }
}

/// Rounds to a millionth: a file of figures shows no more.
fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(runs: &[f64]) -> Measured {
        Measured::new("x", runs.to_vec())
    }

    fn ratio(ours: &[f64], theirs: &[f64]) -> Ratio {
        Ratio::of(&measured(ours), &measured(theirs)).unwrap()
    }

    #[test]
    fn ratios_are_those_of_the_rounds() {
        // Both contenders are slow in the second round: that is no noise.
        let steady = ratio(&[1.0, 3.0, 1.05], &[2.0, 6.0, 2.0]);
        assert_eq!(
            (steady.median, steady.low, steady.high),
            (0.525, 0.5, 0.525)
        );
        assert_eq!(steady.noisy, None);
        let noisy = ratio(&[1.0, 1.0, 1.2], &[2.0, 2.0, 2.0]);
        assert_eq!(noisy.noisy.as_deref(), Some("the rounds differ by 20 %"));
        assert_eq!(noisy.verdict, "faster");
        let few = ratio(&[1.0, 1.0], &[2.0, 2.0]);
        assert_eq!(few.noisy.as_deref(), Some("fewer than 3 rounds"));
        assert_eq!(Ratio::of(&measured(&[]), &measured(&[1.0])), None);
    }

    #[test]
    fn a_failed_run_makes_a_ratio_noisy() {
        let mut ours = measured(&[1.0, 1.0, 1.0]);
        ours.failures.push("no such thing".to_string());
        let against = Against::new(&ours, measured(&[1.0, 1.0, 1.0]), Some(1.0));
        let noisy = against.ratio.unwrap().noisy;
        assert_eq!(noisy.as_deref(), Some("1 runs failed"));
    }

    #[test]
    fn runs_that_found_different_data_are_a_failure() {
        let same = measured(&[1.0, 1.0]).with_found(["a", "a"].into_iter());
        assert_eq!((same.found.as_deref(), same.failures.len()), (Some("a"), 0));
        let differ = measured(&[1.0, 1.0]).with_found(["b", "a"].into_iter());
        assert_eq!(differ.found, None);
        assert_eq!(differ.failures, ["runs found different data: a, b"]);
    }

    #[test]
    fn targets_are_met_or_not() {
        let mut ours = measured(&[1.0]);
        let target = |ours: &Measured, theirs: &[f64], at_most| {
            Against::new(ours, measured(theirs), at_most).target
        };
        assert_eq!(target(&ours, &[2.0], Some(0.5)), Target::Met);
        assert_eq!(target(&ours, &[2.0], Some(0.4)), Target::Missed);
        assert_eq!(target(&ours, &[2.0], None), Target::None);
        assert_eq!(target(&ours, &[], Some(0.4)), Target::NotMeasured);
        ours.found = Some("4 lines".to_string());
        assert_eq!(target(&ours, &[2.0], Some(0.5)), Target::OtherData);
    }

    #[test]
    fn a_counter_that_is_not_told_is_0_where_others_are() {
        let one = Counters::from([("requests".to_string(), 4)]);
        let other = Counters::from([("requests".to_string(), 2), ("opens".to_string(), 1)]);
        let none = Counters::new();
        let medians = Measured::counters([&one, &none, &other].into_iter());
        assert_eq!(medians["requests"], 4);
        assert_eq!(medians["opens"], 1);
        assert_eq!(measured(&[1.0]).counter("requests"), None);
    }
}
