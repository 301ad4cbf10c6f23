//! Detects files that are read at random offsets.

use std::collections::VecDeque;
use std::ops::Range;

use crate::tuning::{SCATTERED_IN_VAIN, SCATTERED_READ, SCATTERED_READS, STORED_FILES};

/// Counts short, non-sequential reads for the most recently read files.
#[derive(Debug, Default)]
pub struct Scattered {
    /// The most recently read file first.
    files: VecDeque<Seen>,
}

#[derive(Debug)]
struct Seen {
    file: u64,
    end: u64,
    /// Consecutive short reads that did not continue the previous read.
    elsewhere: u32,
    /// Consecutive searches for a block to store that found none.
    in_vain: u32,
}

impl Scattered {
    /// Records a read of `range` in `file`. Returns whether the file is read at random offsets, so
    /// that the rest of the block should be stored.
    pub fn on_read(&mut self, file: u64, range: &Range<u64>) -> bool {
        let found = self.files.iter().position(|seen| seen.file == file);
        let known = found.and_then(|at| self.files.remove(at));
        let mut seen = known.unwrap_or(Seen {
            file,
            end: 0,
            elsewhere: 0,
            in_vain: 0,
        });
        let is_short = range.end - range.start <= SCATTERED_READ;
        seen.elsewhere = if is_short && range.start != seen.end {
            seen.elsewhere.saturating_add(1)
        } else {
            0
        };
        seen.end = range.end;
        let is_scattered = seen.elsewhere > SCATTERED_READS && seen.in_vain < SCATTERED_IN_VAIN;
        self.files.push_front(seen);
        self.files.truncate(STORED_FILES);
        is_scattered
    }

    /// Records whether `file` had a block to store.
    pub fn looked(&mut self, file: u64, found: bool) {
        if let Some(seen) = self.files.iter_mut().find(|seen| seen.file == file) {
            seen.in_vain = if found {
                0
            } else {
                seen.in_vain.saturating_add(1)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    /// Returns how many of `reads` short random reads of a file should store a block.
    fn read(scattered: &mut Scattered, file: u64, reads: u64) -> usize {
        let places = (0..reads).map(|n| (n * 7919 % 5003 + 1) * PAGE);
        places
            .filter(|&at| scattered.on_read(file, &(at..at + PAGE)))
            .count()
    }

    #[test]
    fn after_a_few_reads_at_random_places_blocks_are_stored() {
        let mut scattered = Scattered::default();
        assert_eq!(read(&mut scattered, 7, 8), 0);
        assert_eq!(read(&mut scattered, 7, 100), 100);
        assert_eq!(read(&mut scattered, 8, 100), 92, "another file");
    }

    #[test]
    fn readers_in_order_and_long_reads_have_none_stored() {
        let mut scattered = Scattered::default();
        for n in 0..100 {
            assert!(!scattered.on_read(7, &(n * PAGE..(n + 1) * PAGE)));
        }
        for n in 0..100 {
            let at = n * 7919 * PAGE;
            assert!(!scattered.on_read(8, &(at..at + SCATTERED_READ + 1)));
        }
        read(&mut scattered, 7, 20);
        let (at, longer) = (PAGE, SCATTERED_READ + PAGE);
        assert!(!scattered.on_read(7, &(at..at + longer)));
        assert_eq!(
            read(&mut scattered, 7, 9),
            1,
            "counted from the start again"
        );
    }

    #[test]
    fn where_no_block_is_found_none_is_looked_for() {
        let mut scattered = Scattered::default();
        read(&mut scattered, 7, 20);
        for _ in 1..SCATTERED_IN_VAIN {
            scattered.looked(7, false);
        }
        assert_eq!(read(&mut scattered, 7, 20), 20);
        scattered.looked(7, false);
        assert_eq!(read(&mut scattered, 7, 20), 0);
        scattered.looked(7, true);
        assert_eq!(read(&mut scattered, 7, 20), 20, "its queue had one left");
        scattered.looked(9, false);
    }

    #[test]
    fn few_files_are_remembered() {
        let mut scattered = Scattered::default();
        for file in 0..1000 {
            scattered.on_read(file, &(PAGE..2 * PAGE));
        }
        assert_eq!(scattered.files.len(), STORED_FILES);
    }
}
