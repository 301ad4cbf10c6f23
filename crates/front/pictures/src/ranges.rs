//! A set of byte ranges in bounded memory.

use std::collections::BTreeMap;
use std::ops::Range;

/// Initial maximum length of the holes that are filled when a set has too many ranges.
const FIRST_GAP: u64 = 512;

/// A set of bytes, stored as ranges that do not touch. If a set exceeds its maximum number of
/// ranges, it fills its smallest holes and is no longer exact.
#[derive(Clone, Debug)]
pub struct ByteRanges {
    /// Maps the start of each range to its end.
    ranges: BTreeMap<u64, u64>,
    most: usize,
    /// Holes up to this length have been filled.
    gap: u64,
    closed: u64,
}

impl Default for ByteRanges {
    /// Creates an empty set of up to [`ByteRanges::MANY`] ranges.
    fn default() -> Self {
        Self::new(Self::MANY)
    }
}

impl ByteRanges {
    /// A number of ranges that takes about 32 MiB.
    pub const MANY: usize = 1 << 20;

    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self {
            ranges: BTreeMap::new(),
            most,
            gap: 0,
            closed: 0,
        }
    }

    /// Returns whether the set is exact: no holes had to be filled.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.closed == 0
    }

    /// Adds a range. Calls `new` with the parts not yet in the set. Returns how many bytes were in
    /// it already.
    pub fn insert(&mut self, range: Range<u64>, new: &mut dyn FnMut(Range<u64>)) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let before = self.ranges.range(..=range.end).rev();
        let mut touching: Vec<_> = before
            .take_while(|(_, other_end)| **other_end >= range.start)
            .map(|(&start, &end)| start..end)
            .collect();
        touching.reverse();
        let (mut start, mut end, mut again) = (range.start, range.end, 0);
        let mut at = range.start;
        for other in touching {
            if at < other.start {
                new(at..other.start);
            }
            let from = other.start.max(range.start);
            again += other.end.min(range.end).saturating_sub(from);
            at = at.max(other.end);
            start = start.min(other.start);
            end = end.max(other.end);
            self.ranges.remove(&other.start);
        }
        if at < range.end {
            new(at..range.end);
        }
        self.ranges.insert(start, end);
        if self.ranges.len() > self.most {
            self.coarsen();
        }
        again
    }

    /// Fills holes, shortest first, until half of the ranges remain.
    fn coarsen(&mut self) {
        while self.ranges.len() > self.most / 2 && self.ranges.len() > 1 {
            self.gap = self.gap.saturating_mul(2).max(FIRST_GAP);
            let ranges = std::mem::take(&mut self.ranges);
            let mut last: Option<Range<u64>> = None;
            for (start, end) in ranges {
                match &mut last {
                    Some(before) if start - before.end <= self.gap => {
                        self.closed += start - before.end;
                        before.end = end;
                    }
                    _ => {
                        self.keep(last.replace(start..end));
                    }
                }
            }
            self.keep(last);
        }
    }

    fn keep(&mut self, range: Option<Range<u64>>) {
        if let Some(range) = range {
            self.ranges.insert(range.start, range.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_come_again_are_counted() {
        let mut ranges = ByteRanges::default();
        for (range, again, new) in [
            (0..10, 0, &[(0, 10)][..]),
            (10..20, 0, &[(10, 20)]),
            (30..40, 0, &[(30, 40)]),
            (5..35, 20, &[(20, 30)]),
            (0..40, 40, &[]),
            (50..50, 0, &[]),
            (39..60, 1, &[(40, 60)]),
            (100..200, 0, &[(100, 200)]),
            (90..210, 100, &[(90, 100), (200, 210)]),
        ] {
            let mut seen = Vec::new();
            let found = ranges.insert(range.clone(), &mut |part| seen.push((part.start, part.end)));
            assert_eq!((found, seen.as_slice()), (again, new), "{range:?}");
        }
        assert_eq!(ranges.ranges, BTreeMap::from([(0, 60), (90, 210)]));
        assert!(ranges.is_exact());
    }

    #[test]
    fn a_set_of_many_ranges_stays_small() {
        let mut ranges = ByteRanges::new(100);
        for n in 0..10_000 {
            ranges.insert(n * 1000..n * 1000 + 1, &mut |_| {});
        }
        assert!(ranges.ranges.len() <= 101);
        assert!(!ranges.is_exact());
        let covered: u64 = ranges.ranges.iter().map(|(start, end)| end - start).sum();
        assert_eq!(covered, 10_000 + ranges.closed);
        ranges.insert(0..u64::MAX, &mut |_| {});
        assert_eq!(ranges.ranges, BTreeMap::from([(0, u64::MAX)]));
    }
}
