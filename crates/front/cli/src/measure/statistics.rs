//! Medians, spread, and comparisons that can be undecided.

/// Rounds that a comparison needs at least: fewer have no spread.
pub const LEAST_ROUNDS: usize = 3;

/// The middle of some values, and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub median: f64,
    /// The distance between the first and the third quartile: half of the values lie within it. Unlike
    /// the standard deviation it is not changed by a single run that something delayed.
    pub spread: f64,
    /// The number of values.
    pub count: usize,
}

impl Summary {
    /// Sums up values; `None` where there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let mut sorted = values.to_vec();
        let median = median(&mut sorted);
        Some(Self {
            median,
            spread: quantile(&sorted, 0.75) - quantile(&sorted, 0.25),
            count: values.len(),
        })
    }

    /// Returns the spread as a share of the median.
    pub fn relative_spread(&self) -> f64 {
        share(self.spread, self.median)
    }
}

/// A comparison of two measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// The first median as a share of the second.
    pub ratio: f64,
    /// The distance of the medians, as a share of the second.
    pub difference: f64,
    /// The sum of both spreads, as a share of the second median.
    pub spread: f64,
    pub verdict: Verdict,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first takes less time.
    Faster,
    /// The first takes more time.
    Slower,
    /// The spread is not smaller than the difference.
    Undecided,
    /// There are too few rounds for a spread.
    TooFew,
}

impl Verdict {
    /// Returns the name in JSON.
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
    /// Compares two measurements. With equal distributions and five rounds, about one comparison in eighty
    /// is decided by chance.
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

/// Divides, but not by nothing: times of 0 are those that the clock could not tell from it.
fn share(part: f64, whole: f64) -> f64 {
    part / whole.max(1e-9)
}

/// Returns the value in the middle, or the upper of the two.
pub fn middle(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// Returns the middle value, or the mean of the two in the middle; 0 where there are none. Sorts the values.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    quantile(values, 0.5)
}

/// Returns the value below which a share of the sorted values lies, between two of them where it falls
/// there; 0 where there are none.
#[allow(clippy::as_conversions)] // Places in a list of a few thousand values at the most.
fn quantile(sorted: &[f64], at: f64) -> f64 {
    let place = at * sorted.len().saturating_sub(1) as f64;
    let below = place.floor() as usize;
    let value = |index: usize| sorted.get(index).copied();
    match (value(below), value(below + 1)) {
        (Some(low), Some(high)) => (high - low).mul_add(place - place.floor(), low),
        (Some(low), None) => low,
        (None, _) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(middle([5, 1, 3].into_iter()), Some(3));
        assert_eq!(middle([].into_iter()), None);
    }

    #[test]
    fn the_spread_is_that_of_the_half_in_the_middle() {
        for (values, median, spread) in [
            (&[1.0][..], 1.0, 0.0),
            (&[2.0, 1.0], 1.5, 0.5),
            (&[5.0, 1.0, 3.0, 2.0, 4.0], 3.0, 2.0),
            // A run that something delayed changes neither.
            (&[5.0, 1.0, 3.0, 2.0, 400.0], 3.0, 3.0),
            (&[2.0, 2.0, 2.0, 2.0, 900.0], 2.0, 0.0),
            (&[1.0, 2.0, 3.0, 4.0], 2.5, 1.5),
        ] {
            let summary = Summary::of(values).unwrap();
            assert_eq!(
                (summary.median, summary.spread),
                (median, spread),
                "{values:?}"
            );
            assert_eq!(summary.count, values.len());
        }
        assert_eq!(Summary::of(&[]), None);
        let half = Summary::of(&[1.0, 1.5, 2.0, 2.5, 3.0]).unwrap();
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
            (times(1.0, 0.1, 3), times(2.0, 0.1, 3), Verdict::Faster),
        ] {
            let comparison = Comparison::of(&ours, &theirs);
            assert_eq!(comparison.verdict, verdict, "{ours:?} {theirs:?}");
            assert_eq!(comparison.ratio, ours.median / theirs.median);
        }
        let comparison = Comparison::of(&times(1.5, 0.1, 5), &times(2.0, 0.3, 5));
        assert_eq!(comparison.difference, 0.25);
        assert_eq!(comparison.spread, 0.2);
        // A clock that tells nothing divides by nothing.
        assert!(
            Comparison::of(&times(0.0, 0.0, 5), &times(0.0, 0.0, 5))
                .ratio
                .is_finite()
        );
    }
}
