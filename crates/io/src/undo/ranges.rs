//! Sets of offsets, as ranges that do not touch each other.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of offsets. Adjacent ranges are merged, so the memory depends only on the number of gaps.
#[derive(Debug, Default)]
pub struct Ranges {
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    pub fn insert(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        // Take the last range that starts at or before `end`, until a range ends before `start`.
        while let Some((&other, &other_end)) = self.ends.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            self.ends.remove(&other);
            start = start.min(other);
            end = end.max(other_end);
        }
        self.ends.insert(start, end);
    }

    pub fn first_gap(&self, range: Range<u64>) -> Option<u64> {
        let at = self.end_at(range.start).unwrap_or(range.start);
        (at < range.end).then_some(at)
    }

    pub fn first_in(&self, range: Range<u64>) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        if self.end_at(range.start).is_some() {
            return Some(range.start);
        }
        let mut starts = self.ends.range(range.clone()).map(|(&start, _)| start);
        starts.next()
    }

    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ends.iter().map(|(&start, &end)| start..end)
    }

    fn end_at(&self, offset: u64) -> Option<u64> {
        let (_, &end) = self.ends.range(..=offset).next_back()?;
        (end > offset).then_some(end)
    }
}
