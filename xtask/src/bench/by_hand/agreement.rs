//! How far two series of ratios agree.

use forerun_measure::statistics::{Summary, median};

/// The most by which medians may differ.
const MOST: f64 = 0.1;

/// The ratios of one comparison, round by round: as `forerun bench` measures them, and by hand.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    bench: Vec<f64>,
    hand: Vec<f64>,
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// The medians are at most a tenth apart.
    Agrees,
    /// They are further apart, and so are the rounds among themselves.
    Noisy,
    /// They are further apart than the rounds explain.
    Differs,
}

impl Agreement {
    /// Returns the word for the table.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Noisy => "noisy: measure more rounds, or on a quieter machine",
            Self::Differs => "DIFFERS",
        }
    }
}

impl Compared {
    /// Adds the ratios of a round.
    pub fn push(&mut self, bench: f64, hand: f64) {
        self.bench.push(bench);
        self.hand.push(hand);
    }

    /// Returns the medians of both sides.
    pub fn medians(&self) -> (f64, f64) {
        (
            median(&mut self.bench.clone()),
            median(&mut self.hand.clone()),
        )
    }

    /// Returns by which share the medians differ.
    pub fn difference(&self) -> f64 {
        let (bench, hand) = self.medians();
        let (less, more) = (bench.min(hand), bench.max(hand));
        more / less.max(1e-9) - 1.0
    }

    /// Returns the sum of the spreads of both sides, as shares of their medians.
    pub fn noise(&self) -> f64 {
        let spread = |ratios: &[f64]| Summary::of(ratios).map_or(0.0, |of| of.relative_spread());
        spread(&self.bench) + spread(&self.hand)
    }

    /// Returns the result.
    pub fn agreement(&self) -> Agreement {
        let difference = self.difference();
        if difference <= MOST {
            Agreement::Agrees
        } else if self.noise() >= difference {
            Agreement::Noisy
        } else {
            Agreement::Differs
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_one_only_beyond_a_tenth_and_beyond_the_noise() {
        for (bench, hand, expected) in [
            ([0.50, 0.50, 0.51], [0.54, 0.54, 0.55], Agreement::Agrees),
            ([0.50, 0.50, 0.51], [0.60, 0.60, 0.61], Agreement::Differs),
            ([0.60, 0.60, 0.61], [0.50, 0.50, 0.51], Agreement::Differs),
            ([0.40, 0.50, 0.60], [0.45, 0.60, 0.70], Agreement::Noisy),
            // One slow round of three says nothing about the others.
            ([0.50, 0.50, 9.0], [0.50, 0.50, 0.50], Agreement::Agrees),
        ] {
            let mut compared = Compared::default();
            for (bench, hand) in bench.into_iter().zip(hand) {
                compared.push(bench, hand);
            }
            assert_eq!(compared.agreement(), expected, "{bench:?} {hand:?}");
        }
    }
}
