//! Readahead around random reads of compressed data: once much of a region was wanted, the rest is
//! hinted.
//!
//! The engine cannot predict the next block. But a program that has read a quarter of a file in
//! random order will want more of it, and it waits for each block. So from then on, at a miss the
//! kernel reads the region around the block into its page cache, in large requests. In the worst
//! case this reads three times the wanted bytes in vain.

use std::collections::HashMap;
use std::ops::Range;

use crate::tuning::{AROUND_PART, AROUND_REGION, AROUND_REGIONS, AROUND_SHARE};

/// Counts of the bytes that readers wanted, per region of an image.
#[derive(Default)]
pub struct Around {
    regions: HashMap<u64, Region>,
}

#[derive(Default)]
struct Region {
    wanted: u64,
    hinted: u64,
}

impl Around {
    /// Records that a block of an image of `len` bytes had to be read. Returns the range to hint,
    /// if any.
    pub fn on_miss(&mut self, block: &Range<u64>, len: u64) -> Option<Range<u64>> {
        let number = block.start / AROUND_REGION;
        let is_full = self.regions.len() >= AROUND_REGIONS && !self.regions.contains_key(&number);
        if block.start >= len || is_full {
            return None;
        }
        let region = self.regions.entry(number).or_default();
        region.wanted += block.end - block.start;
        let start = number * AROUND_REGION;
        let region_len = (len - start).min(AROUND_REGION);
        let part = (block.start - start) / AROUND_PART;
        if region.wanted < region_len / AROUND_SHARE || region.hinted & 1 << part != 0 {
            return None;
        }
        region.hinted |= 1 << part;
        let from = start + part * AROUND_PART;
        Some(from..(from + AROUND_PART).min(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forerun_io::u64_from;

    const BLOCK: u64 = 40 << 10;

    /// Reads `reads` of `count` blocks in random order. Returns how many were not hinted before,
    /// and the bytes hinted.
    fn read(count: u64, reads: u64) -> (u64, u64) {
        let mut around = Around::default();
        let (mut misses, mut hints) = (0, Vec::<Range<u64>>::new());
        for n in 0..reads {
            let at = n * 1009 % count * BLOCK;
            misses += u64::from(!hints.iter().any(|hint| hint.contains(&at)));
            hints.extend(around.on_miss(&(at..at + BLOCK), count * BLOCK));
        }
        let bytes = hints.iter().map(|hint| hint.end - hint.start).sum();
        hints.sort_by_key(|hint| hint.start);
        assert!(hints.is_sorted_by(|a, b| a.end <= b.start), "twice");
        (misses, bytes)
    }

    #[test]
    fn of_a_file_that_is_read_at_random_the_rest_is_hinted_after_a_quarter() {
        let (misses, bytes) = read(1800, 1800);
        assert!((450..650).contains(&misses), "{misses}");
        assert!(bytes <= 1800 * BLOCK, "{bytes}");
    }

    #[test]
    fn a_few_reads_hint_nothing() {
        assert_eq!(read(1800, 400), (400, 0));
        assert_eq!(read(100_000, 4000), (4000, 0));
    }

    #[test]
    fn the_end_of_an_image_is_a_region_too() {
        let mut around = Around::default();
        let len = AROUND_REGION + 3 * AROUND_PART / 2;
        let block = len - BLOCK..len;
        let hints = (0..100).filter_map(|_| around.on_miss(&block, len));
        let hints: Vec<_> = hints.map(|hint| (hint.start, hint.end)).collect();
        assert_eq!(hints, [(AROUND_REGION + AROUND_PART, len)]);
        assert_eq!(around.on_miss(&(len..len + BLOCK), len), None);
    }

    #[test]
    fn regions_are_bounded() {
        let mut around = Around::default();
        for n in 0..2 * u64_from(AROUND_REGIONS) {
            let at = n * AROUND_REGION;
            around.on_miss(&(at..at + BLOCK), u64::MAX);
        }
        assert_eq!(around.regions.len(), AROUND_REGIONS);
    }
}
