//! How far two series of ratios agree.

use forerun_measure::statistics::{Summary, median};

/// The most by which medians may differ.
const MOST: f64 = 0.1;
/// How likely chance alone may be to have so many rounds lean one way, for that to count as chance.
const CHANCE: f64 = 0.01;

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
    /// They are further apart than the rounds explain: than these differ by, or in too many of them.
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

    /// Returns in how many rounds `forerun bench` told more, and in how many less.
    pub fn more_and_less(&self) -> (usize, usize) {
        let pairs = || self.bench.iter().zip(&self.hand);
        let more = pairs().filter(|(bench, hand)| bench > hand).count();
        let less = pairs().filter(|(bench, hand)| bench < hand).count();
        (more, less)
    }

    /// Returns whether more rounds lean one way than chance would have (sign test, both sides). Below eight rounds none do:
    /// chance has seven of seven in one of 64 series.
    fn leans(&self) -> bool {
        let (more, less) = self.more_and_less();
        let rounds = more + less;
        let mut ways = 1.0;
        let mut at_most = 0.0;
        for (left, few) in (0..=more.min(less)).zip(1_u32..) {
            at_most += ways;
            ways *= count(rounds - left) / f64::from(few);
        }
        2.0 * at_most < CHANCE * count(rounds).exp2()
    }

    /// Returns the result.
    pub fn agreement(&self) -> Agreement {
        let difference = self.difference();
        if difference <= MOST {
            Agreement::Agrees
        } else if self.noise() >= difference && !self.leans() {
            Agreement::Noisy
        } else {
            Agreement::Differs
        }
    }
}

/// Returns a number of rounds to compute with.
fn count(rounds: usize) -> f64 {
    u32::try_from(rounds).map_or(f64::INFINITY, f64::from)
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

    #[test]
    fn a_noisy_difference_is_one_where_more_rounds_lean_one_way_than_chance_has() {
        // The slowest rounds of either side take twice as long as the fastest.
        let noisy = |round: u32| f64::from(4 + round % 5);
        for (more, less, expected) in [
            (5, 0, Agreement::Noisy),
            (7, 0, Agreement::Noisy),
            (8, 0, Agreement::Differs),
            (0, 8, Agreement::Differs),
            (10, 1, Agreement::Noisy),
            (11, 1, Agreement::Differs),
            (21, 4, Agreement::Differs),
            (18, 7, Agreement::Noisy),
            (4, 21, Agreement::Differs),
            (300, 700, Agreement::Differs),
        ] {
            let mut compared = Compared::default();
            for round in 0..more + less {
                let lean = if round < more { 1.4 } else { 1.0 / 1.4 };
                compared.push(noisy(round) * lean, noisy(round));
            }
            assert_eq!(
                compared.more_and_less(),
                (
                    usize::try_from(more).unwrap(),
                    usize::try_from(less).unwrap()
                )
            );
            assert_eq!(compared.agreement(), expected, "{more} {less}");
        }
    }
}
