//! Prefetches an image's metadata into the page cache before the kernel's driver reads it.
//!
//! The drivers read metadata one block at a time and wait for each. Large requests in walk order
//! run at the speed of the disk. Prefetching does not wait: the driver uses the first blocks while
//! the rest is in flight.
//!
//! Metadata that is interleaved with data is at unknown offsets. If such an image has many inodes
//! for its length, reading all of it is faster than the driver's single blocks.

use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;

use forerun::vfs::{FileSystem, MetadataLayout};
use forerun_sys::memory_limit::MemoryLimit;
use rustix::fs::Advice;

/// Bytes per request. The kernel splits longer requests at the device's limit.
const STEP: u64 = 128 << 10;

/// Maximum image bytes per inode for prefetching a whole image with interleaved metadata: a disk
/// transfers that much in about the time of one small request.
const WORTH: u64 = 48 << 10;

// Clippy takes the list of one range for a list of its numbers.
#[allow(clippy::single_range_in_vec_init)]
pub fn ranges(fs: &dyn FileSystem) -> Vec<Range<u64>> {
    if let MetadataLayout::Ranges(ranges) = fs.metadata_layout() {
        return ranges;
    }
    let volume = fs.volume();
    if worth_it(volume.image_len, volume.inodes) {
        vec![0..volume.image_len]
    } else {
        Vec::new()
    }
}

/// Returns whether the whole image is prefetched because the offsets of its metadata are unknown.
pub fn is_everything(fs: &dyn FileSystem) -> bool {
    fs.metadata_layout().ranges().is_empty() && !ranges(fs).is_empty()
}

fn worth_it(image_len: u64, inodes: Option<u64>) -> bool {
    inodes.is_some_and(|inodes| image_len / WORTH <= inodes)
}

/// Requests `ranges` of the image, which begins at offset `base` of `file`. Returns the number of
/// bytes requested.
pub fn prefetch(file: &File, base: u64, ranges: &[Range<u64>]) -> u64 {
    let mut asked = 0_u64;
    for step in steps(ranges, budget()) {
        let len = step.end - step.start;
        let (Some(start), Some(size)) = (base.checked_add(step.start), NonZeroU64::new(len)) else {
            break;
        };
        if rustix::fs::fadvise(file, start, Some(size), Advice::WillNeed).is_err() {
            break;
        }
        asked += len;
    }
    asked
}

fn steps(ranges: &[Range<u64>], budget: u64) -> impl Iterator<Item = Range<u64>> {
    let mut left = budget;
    let steps = ranges.iter().flat_map(|range| {
        let end = range.end;
        let mut at = range.start;
        std::iter::from_fn(move || {
            let start = at;
            // Requests end at multiples of STEP, so that no page is requested twice.
            at = (start - start % STEP).checked_add(STEP)?.min(end);
            (start < end).then_some(start..at)
        })
    });
    steps.map_while(move |step| {
        left = left.checked_sub(step.end - step.start)?;
        Some(step)
    })
}

/// Returns the maximum number of bytes to request; more would evict the first pages.
fn budget() -> u64 {
    MemoryLimit::of_process().eighth(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strewn_metadata_is_worth_the_whole_image_where_it_is_dense() {
        assert!(worth_it(48 << 20, Some(1024)));
        assert!(!worth_it(50 << 20, Some(1024)));
        assert!(!worth_it(1 << 10, None), "inodes were not counted");
    }

    #[test]
    fn steps_cover_the_ranges_within_the_budget() {
        let (a, b) = (10..20, STEP - 5..3 * STEP + 7);
        let ranges = [a.clone(), b, 9..9];
        let all: Vec<_> = steps(&ranges, u64::MAX).collect();
        let expected = [
            a,
            STEP - 5..STEP,
            STEP..2 * STEP,
            2 * STEP..3 * STEP,
            3 * STEP..3 * STEP + 7,
        ];
        assert_eq!(all, expected);
        assert_eq!(steps(&ranges, 15).count(), 2);
        assert_eq!(steps(&ranges, 9).count(), 0);
        let end = [9..9, u64::MAX - 1..u64::MAX];
        assert!(steps(&end, u64::MAX).count() <= 1);
    }
}
