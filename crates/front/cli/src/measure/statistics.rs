//! Statistics of one workload and contender: medians, spread, and comparisons that may be undecided.

use anyhow::{Error, Result};

use super::run::Run;

/// Rounds that a comparison needs. Fewer give no spread.
pub const LEAST_ROUNDS: usize = 3;

/// Completed runs, and the errors of the others.
#[derive(Debug, Default)]
pub struct Samples {
    pub runs: Vec<Run>,
    pub failures: Vec<Error>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub median: f64,
    /// The interquartile range, which contains half of the values. Unlike the standard deviation, a
    /// single delayed run does not change it.
    pub spread: f64,
    pub count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// The first median as a share of the second.
    pub ratio: f64,
    /// The difference of the medians, as a share of the second.
    pub difference: f64,
    /// The sum of both spreads, as a share of the second median.
    pub spread: f64,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first takes less time.
    Faster,
    /// The first takes more time.
    Slower,
    /// The difference does not exceed the spread.
    Undecided,
    /// There are too few rounds for a spread.
    TooFew,
}

impl Samples {
    pub fn push(&mut self, run: Result<Run>) {
        match run {
            Ok(run) => self.runs.push(run),
            Err(error) => self.failures.push(error),
        }
    }

    /// Summarises the times. Returns `None` if there are no runs.
    pub fn summary(&self) -> Option<Summary> {
        Summary::of(self.runs.iter().map(|run| run.seconds).collect())
    }

    /// Returns the data that all runs found, or `None` if they differ.
    pub fn found(&self) -> Option<&str> {
        let first = &self.runs.first()?.found;
        let is_same = self.runs.iter().all(|run| run.found == *first);
        is_same.then_some(first)
    }

    pub fn peak(&self) -> Option<u64> {
        self.runs.iter().filter_map(|run| run.peak).max()
    }

    /// Returns the median of a sum of counters, selected by `is_asked`. Returns `None` if no run
    /// has counters. A counter that a run does not list is 0.
    pub fn counter(&self, is_asked: impl Fn(&str) -> bool) -> Option<u64> {
        let counters = self.runs.iter().map(|run| &run.counters);
        let counted = counters.filter(|counters| !counters.is_empty());
        let sums = counted.map(|counters| {
            let asked = counters.iter().filter(|(name, _)| is_asked(name));
            asked.map(|(_, count)| count).sum()
        });
        let mut sums: Vec<u64> = sums.collect();
        sums.sort_unstable();
        sums.get(sums.len() / 2).copied()
    }
}

impl Summary {
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        Some(Self {
            median: quantile(&values, 0.5)?,
            spread: quantile(&values, 0.75)? - quantile(&values, 0.25)?,
            count: values.len(),
        })
    }

    pub fn relative_spread(&self) -> f64 {
        share(self.spread, self.median)
    }
}

impl Verdict {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Undecided => "undecided",
            Self::TooFew => "too_few_rounds",
        }
    }
}

impl Comparison {
    /// Compares two measurements. With equal distributions and five rounds, about one comparison in
    /// eighty is decided by chance.
    pub fn of(first: &Summary, second: &Summary) -> Self {
        let difference = (first.median - second.median).abs();
        let spread = first.spread + second.spread;
        let verdict = if first.count.min(second.count) < LEAST_ROUNDS {
            Verdict::TooFew
        } else if spread >= difference {
            Verdict::Undecided
        } else if first.median < second.median {
            Verdict::Faster
        } else {
            Verdict::Slower
        };
        Self {
            ratio: share(first.median, second.median),
            difference: share(difference, second.median),
            spread: share(spread, second.median),
            verdict,
        }
    }
}

/// Divides, but never by 0: times of 0 are too short for the clock.
fn share(part: f64, whole: f64) -> f64 {
    part / whole.max(1e-9)
}

/// Returns the value below which a share of the sorted values lies. Interpolates between two
/// values.
#[allow(clippy::as_conversions)] // Places in a list of a few thousand values at the most.
fn quantile(sorted: &[f64], at: f64) -> Option<f64> {
    let place = at * (sorted.len().checked_sub(1)? as f64);
    let low = sorted.get(place.floor() as usize)?;
    let high = sorted.get(place.ceil() as usize)?;
    Some((high - low).mul_add(place.fract(), *low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(counters: &[(&str, u64)]) -> Result<Run> {
        let counters = counters.iter().map(|(name, n)| ((*name).to_string(), *n));
        Ok(Run {
            seconds: 2.0,
            counters: counters.collect(),
            ..Run::default()
        })
    }

    #[test]
    fn a_counter_that_is_not_told_is_0_where_others_are() {
        let mut samples = Samples::default();
        samples.push(run(&[]));
        assert_eq!(samples.counter(|name| name == "opens"), None);
        samples.push(run(&[("fuse_read", 2), ("fuse_open", 10)]));
        assert_eq!(samples.counter(|name| name == "opens"), Some(0));
        assert_eq!(samples.counter(|name| name.starts_with("fuse_")), Some(12));
        samples.push(Err(anyhow::anyhow!("failed")));
        assert_eq!((samples.runs.len(), samples.failures.len()), (2, 1));
        assert_eq!(samples.summary().unwrap().median, 2.0);
    }

    #[test]
    fn the_spread_is_that_of_the_half_in_the_middle() {
        for (values, median, spread) in [
            (&[1.0][..], 1.0, 0.0),
            (&[2.0, 1.0], 1.5, 0.5),
            (&[5.0, 1.0, 3.0, 2.0, 4.0], 3.0, 2.0),
            // A single delayed run changes neither median nor spread.
            (&[5.0, 1.0, 3.0, 2.0, 400.0], 3.0, 3.0),
            (&[2.0, 2.0, 2.0, 2.0, 900.0], 2.0, 0.0),
            (&[1.0, 2.0, 3.0, 4.0], 2.5, 1.5),
        ] {
            let summary = Summary::of(values.to_vec()).unwrap();
            let count = values.len();
            assert_eq!(
                summary,
                Summary {
                    median,
                    spread,
                    count
                },
                "{values:?}"
            );
        }
        assert_eq!(Summary::of(Vec::new()), None);
        let half = Summary::of(vec![1.0, 1.5, 2.0, 2.5, 3.0]).unwrap();
        assert_eq!(half.relative_spread(), 0.5);
    }

    #[test]
    fn a_verdict_needs_a_difference_beyond_the_spread_and_rounds() {
        let times = |median: f64, spread: f64, count| Summary {
            median,
            spread,
            count,
        };
        for (ours, theirs, verdict) in [
            (times(1.0, 0.1, 5), times(2.0, 0.1, 5), Verdict::Faster),
            (times(2.0, 0.1, 5), times(1.0, 0.1, 5), Verdict::Slower),
            (times(1.0, 0.5, 5), times(2.0, 0.4, 5), Verdict::Faster),
            (times(1.0, 0.5, 5), times(2.0, 0.5, 5), Verdict::Undecided),
            (times(1.0, 0.0, 5), times(1.0, 0.0, 5), Verdict::Undecided),
            (times(1.0, 0.1, 2), times(2.0, 0.1, 5), Verdict::TooFew),
            (times(1.0, 0.1, 5), times(2.0, 0.1, 1), Verdict::TooFew),
        ] {
            let comparison = Comparison::of(&ours, &theirs);
            assert_eq!(comparison.verdict, verdict, "{ours:?} {theirs:?}");
            assert_eq!(comparison.ratio, ours.median / theirs.median);
        }
        let comparison = Comparison::of(&times(1.5, 0.1, 5), &times(2.0, 0.3, 5));
        assert_eq!((comparison.difference, comparison.spread), (0.25, 0.2));
        // A clock without resolution leads to a division by 0.
        let nothing = times(0.0, 0.0, 5);
        assert!(Comparison::of(&nothing, &nothing).ratio.is_finite());
    }
}
