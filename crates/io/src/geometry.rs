//! The division of a source into blocks.

use std::ops::Range;

/// The block size of the legacy mode, and the smallest block size: 1 KiB.
pub const LEGACY_BLOCK: u64 = 1024;

#[must_use]
pub fn page_size() -> u64 {
    crate::u64_from(rustix::param::page_size())
}

/// The blocks of a source, and the largest request for neighbouring blocks.
///
/// With one block size for all of it, a source whose length is an odd multiple of 1 KiB would be
/// read in blocks of 1 KiB. Here only the tail is: the body keeps page-sized blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockGeometry {
    block: u64,
    tail_start: u64,
    tail_block: u64,
    len: u64,
    max_request: u64,
}

impl BlockGeometry {
    /// Creates the geometry of `nolargeblocks`: 1 KiB blocks, one request each.
    #[must_use]
    pub const fn legacy(len: u64) -> Self {
        Self {
            block: LEGACY_BLOCK,
            tail_start: len,
            tail_block: LEGACY_BLOCK,
            len,
            max_request: LEGACY_BLOCK,
        }
    }

    /// Creates the geometry of `largeblocks`. Blocks have `page` bytes. The tail past the last full
    /// page has blocks of the largest power of two up to `page` that divides `len`, at least 1 KiB.
    /// Neighbouring blocks are read in one request of at most `max_request` bytes.
    ///
    /// `page` is a power of two of at least 1 KiB; `max_request` is rounded down to a multiple of
    /// `page`, but to at least one page.
    #[must_use]
    pub fn large(len: u64, page: u64, max_request: u64) -> Self {
        let page = page.max(LEGACY_BLOCK);
        Self {
            block: page,
            tail_start: len - len % page,
            tail_block: dividing_block(len, page),
            len,
            max_request: (max_request - max_request % page).max(page),
        }
    }

    /// Returns the block size of the body, in bytes.
    #[must_use]
    pub const fn block(&self) -> u64 {
        self.block
    }

    #[must_use]
    pub const fn tail_block(&self) -> u64 {
        self.tail_block
    }

    /// Returns the length of the largest request, in bytes.
    #[must_use]
    pub const fn max_request(&self) -> u64 {
        self.max_request
    }

    /// Widens `range` to whole blocks, clamped to the source.
    #[must_use]
    pub fn align(&self, range: Range<u64>) -> Range<u64> {
        let start = range.start - range.start % self.block_at(range.start);
        let block = self.block_at(range.end.saturating_sub(1));
        let end = range.end.next_multiple_of(block);
        start.min(self.len)..end.min(self.len)
    }

    /// Returns the requests that read `range`, widened to whole blocks.
    pub fn requests(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let Range { mut start, end } = self.align(range);
        let max = self.max_request;
        std::iter::from_fn(move || {
            if start >= end {
                return None;
            }
            let next = (start + max).min(end);
            let request = start..next;
            start = next;
            Some(request)
        })
    }

    fn block_at(&self, offset: u64) -> u64 {
        if offset >= self.tail_start {
            self.tail_block
        } else {
            self.block
        }
    }
}

/// Returns the largest power of two up to `page` that divides `len`, at least 1 KiB.
fn dividing_block(len: u64, page: u64) -> u64 {
    let mut block = page;
    while block > LEGACY_BLOCK && !len.is_multiple_of(block) {
        block /= 2;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_power_of_two_that_divides_the_length() {
        for (len, tail) in [
            (0, 4096),
            (4096, 4096),
            (250 << 20, 4096),
            (6144, 2048),
            (5120, 1024),
            (1024, 1024),
            (1000, 1024),
            (4097, 1024),
        ] {
            assert_eq!(
                BlockGeometry::large(len, 4096, 4 << 20).tail_block(),
                tail,
                "{len}"
            );
        }
    }

    #[test]
    fn an_odd_tail_leaves_the_body_alone() {
        let odd = BlockGeometry::large((1 << 20) + 1024, 4096, 4 << 20);
        assert_eq!((odd.block(), odd.tail_block()), (4096, 1024));
        assert_eq!(odd.align(5000..5001), 4096..8192);
        assert_eq!(
            odd.align((1 << 20)..(1 << 20) + 1),
            (1 << 20)..(1 << 20) + 1024
        );
        assert_eq!(odd.requests(0..(1 << 20) + 1024).count(), 1);
    }

    #[test]
    fn requests_cover_the_range_in_blocks() {
        let large = BlockGeometry::large(10 << 20, 4096, 4 << 20);
        let requests: Vec<_> = large.requests(1..(9 << 20)).collect();
        assert_eq!(requests, [0..4 << 20, 4 << 20..8 << 20, 8 << 20..9 << 20]);
        let legacy = BlockGeometry::legacy(10_000);
        let requests: Vec<_> = legacy.requests(1000..2100).collect();
        assert_eq!(requests, [0..1024, 1024..2048, 2048..3072]);
        assert_eq!(legacy.requests(9999..10_000).last(), Some(9216..10_000));
    }
}
