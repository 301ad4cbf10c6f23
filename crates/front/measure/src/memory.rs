//! Memory at hand, so that no run waits until a host gives some.

use std::fs;

use forerun_io::usize_from;
use forerun_sys::memory_limit::MemoryLimit;
use memmap2::{Advice, MmapMut};
use rustix::param::page_size;
use rustix::system::sysinfo;

/// The most bytes that a run finds at hand in large pages, and again in small ones: what reading the largest file of a
/// bench allocates.
const MOST_AT_HAND: u64 = 3 << 30;
/// Bytes that programs allocate for themselves in a run, with a margin.
const OWN: u64 = 256 << 20;
/// How often contents are in memory during a run, at the most: with the image, the mount or the tree that is extracted,
/// its loop device, and what a driver keeps.
const COPIES: u64 = 4;
/// The part of the free memory (one in so many) that is used at most, in pages of each size.
const SHARE: u64 = 4;
/// Bytes of a large page on most machines, and the smallest that a machine gives back.
const LARGE_PAGE: u64 = 2 << 20;

/// Returns how many bytes a run that reads or extracts `contents` bytes is to find at hand.
fn needed_for(contents: u64) -> u64 {
    contents
        .saturating_mul(COPIES)
        .saturating_add(OWN)
        .min(MOST_AT_HAND)
}

/// Uses as much memory once as a run needs that reads or extracts `contents` bytes, and frees it: what is allocated next
/// is that. Uses less where that is much for the machine.
///
/// A virtual machine gives its host what is free for about two seconds (free page reporting of the balloon), and asks
/// for it again page by page when it is used. Reading 250 MB into the page cache took 0.09 s with memory that had been
/// used just before, and 0.45 s with other memory, whichever program read. The kernel allocates from the smallest free
/// pieces that suffice. Page caches of large folios take large pages, those of FUSE and of small files what is left of
/// large pages that were cut: both are used.
pub fn have_at_hand(contents: u64) {
    let system = sysinfo();
    let free = u64::from(system.mem_unit).saturating_mul(system.freeram);
    let most = used_once(needed_for(contents), MemoryLimit::of_process(), free);
    let pieces = fs::read_to_string("/proc/buddyinfo").map_or(0, |text| in_pieces(&text));
    let _until_the_small_ones_are_used = used(most, Advice::HugePage);
    let _both_are_freed_together = used(pieces.min(most), Advice::NoHugePage);
}

/// Returns `len` bytes that were used, as far as there are any: without them, runs are only noisier.
fn used(len: u64, pages: Advice) -> Option<MmapMut> {
    let map = MmapMut::map_anon(usize_from(len)).ok()?;
    let _kernel_without_large_pages = map.advise(pages);
    let _before_linux_5_14 = map.advise(Advice::PopulateWrite);
    Some(map)
}

/// Returns how many of `len` bytes a process with that limit uses, of `free` ones.
fn used_once(len: u64, limit: &MemoryLimit, free: u64) -> u64 {
    limit.eighth(len).min(free / SHARE)
}

/// Returns the free bytes in pieces smaller than a large page, of a text of `/proc/buddyinfo`: counts of pieces of 1, 2,
/// 4 pages and so on, for each zone.
fn in_pieces(text: &str) -> u64 {
    let page = u64::try_from(page_size()).unwrap_or(LARGE_PAGE);
    let sizes = || std::iter::successors(Some(page), |size| size.checked_mul(2));
    let of_zone = |line: &str| {
        let counts = line
            .split_whitespace()
            .skip(4)
            .map_while(|count| count.parse::<u64>().ok());
        let small = counts
            .zip(sizes())
            .take_while(|(_, size)| *size < LARGE_PAGE);
        small.fold(0, |sum: u64, (count, size)| {
            sum.saturating_add(count.saturating_mul(size))
        })
    };
    text.lines().map(of_zone).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_the_limit_nor_what_is_free_is_used_up() {
        const GIB: u64 = 1 << 30;
        for (len, limit, free, expected) in [
            (3 * GIB, 64 * GIB, 60 * GIB, 3 * GIB),
            (2 * GIB, 64 * GIB, 60 * GIB, 2 * GIB),
            (3 * GIB, 64 * GIB, 4 * GIB, GIB),
            (3 * GIB, GIB, 60 * GIB, GIB / 8),
            (3 * GIB, 0, 60 * GIB, 0),
            (3 * GIB, 64 * GIB, 0, 0),
            (0, 64 * GIB, 60 * GIB, 0),
        ] {
            let limit = MemoryLimit::of_machine(limit);
            assert_eq!(
                used_once(len, &limit, free),
                expected,
                "{len} {limit} {free}"
            );
        }
    }

    #[test]
    fn large_contents_need_no_more_than_the_most() {
        for (contents, expected) in [
            (0, OWN),
            (1 << 20, OWN + (4 << 20)),
            (1 << 30, MOST_AT_HAND),
            (u64::MAX, MOST_AT_HAND),
        ] {
            assert_eq!(needed_for(contents), expected, "{contents}");
        }
    }

    #[test]
    fn pieces_of_all_zones_are_counted_and_large_pages_are_not() {
        let page = u64::try_from(page_size()).unwrap();
        let text = "Node 0, zone      DMA      0      1\n\
                    Node 0, zone   Normal      3      2      1      0      0      0      0      0      0     9   7\n";
        assert_eq!(in_pieces(text), (2 + 3 + 4 + 4) * page);
        for damaged in [
            "",
            "Node 0, zone",
            "Node 0, zone Normal",
            "Node 0, zone Normal x 1",
            "99999999999999999999",
        ] {
            assert_eq!(in_pieces(damaged), 0, "{damaged}");
        }
    }
}
