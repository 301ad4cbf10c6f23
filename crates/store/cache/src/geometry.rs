//! The chunks of an image, and the levels of its chunk table.
//!
//! A chunk is the unit of fetching, verification and presence; all but the last have the same
//! length. The table is the Merkle tree of fs-verity with the chunk size as block size. A hash
//! block holds the SHA-256 digests of the blocks below it, padded with zeros. Levels are stored
//! from the top down, as in the kernel.

use std::ops::Range;

use forerun_io::u64_from;

pub(crate) const DIGEST_LEN: u64 = 32;
/// Smallest chunk size: the smallest block size of fs-verity.
pub const MIN_CHUNK: u32 = 1 << 10;
pub const MAX_CHUNK: u32 = 1 << 20;
pub const DEFAULT_CHUNK: u32 = 64 << 10;
/// Most chunks of one image: their bitmap takes 32 MiB of memory.
pub const MAX_CHUNKS: u64 = 1 << 28;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadGeometry {
    /// The chunk size is not a power of two or out of range.
    #[error("{0} is not a chunk size: a power of two from {MIN_CHUNK} to {MAX_CHUNK}")]
    ChunkSize(u32),
    #[error("{len} bytes in chunks of {chunk_size} are more than {MAX_CHUNKS} chunks")]
    TooLong { len: u64, chunk_size: u32 },
}

/// The validated length and chunk size of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    len: u64,
    chunk_size: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// First block of the level in the table.
    pub(crate) start: u64,
    pub(crate) blocks: u64,
}

impl Geometry {
    /// Validates the length and the chunk size.
    ///
    /// # Errors
    /// [`BadGeometry`] for an unsupported length or chunk size.
    pub const fn new(len: u64, chunk_size: u32) -> Result<Self, BadGeometry> {
        if !chunk_size.is_power_of_two() || chunk_size < MIN_CHUNK || chunk_size > MAX_CHUNK {
            return Err(BadGeometry::ChunkSize(chunk_size));
        }
        let this = Self { len, chunk_size };
        if this.chunks() > MAX_CHUNKS {
            return Err(BadGeometry::TooLong { len, chunk_size });
        }
        Ok(this)
    }

    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the length of every chunk except the last.
    #[must_use]
    pub const fn chunk_size(&self) -> u32 {
        self.chunk_size
    }

    #[must_use]
    pub const fn chunks(&self) -> u64 {
        self.len.div_ceil(self.size())
    }

    /// Returns the number of the chunk that holds the byte at `offset`.
    #[must_use]
    pub const fn chunk_at(&self, offset: u64) -> u64 {
        offset / self.size()
    }

    /// Returns the chunks that hold bytes of `range`, limited to the image.
    #[must_use]
    pub fn chunks_of(&self, range: &Range<u64>) -> Range<u64> {
        let end = range.end.min(self.len);
        if range.start >= end {
            let at = self.chunk_at(range.start.min(self.len));
            return at..at;
        }
        self.chunk_at(range.start)..end.div_ceil(self.size())
    }

    /// Returns the byte range of `chunks`, limited to the image.
    #[must_use]
    pub fn bytes_of(&self, chunks: &Range<u64>) -> Range<u64> {
        let at = |chunk: u64| chunk.saturating_mul(self.size()).min(self.len);
        at(chunks.start)..at(chunks.end)
    }

    /// Returns the length of a chunk; 0 past the end.
    #[must_use]
    pub fn len_of(&self, chunk: u64) -> u64 {
        let range = self.bytes_of(&(chunk..chunk + 1));
        range.end - range.start
    }

    /// Returns the length of the chunk table in bytes. fs-verity has no tree for an image of one
    /// chunk; the table then holds that chunk's digest.
    #[must_use]
    pub fn table_len(&self) -> u64 {
        match self.chunks() {
            0 => 0,
            1 => DIGEST_LEN,
            _ => self.levels().iter().map(|level| level.blocks).sum::<u64>() * self.size(),
        }
    }

    /// Returns the number of digests in a hash block.
    pub(crate) const fn arity(&self) -> u64 {
        self.size() / DIGEST_LEN
    }

    /// Returns the levels of the table from the leaves up; none for at most one chunk.
    pub(crate) fn levels(&self) -> Vec<Level> {
        let mut levels = Vec::new();
        let mut below = self.chunks();
        // The arity is at least 32, so this takes at most six rounds.
        while below > 1 {
            below = below.div_ceil(self.arity());
            levels.push(Level {
                start: 0,
                blocks: below,
            });
        }
        let mut start = 0;
        for level in levels.iter_mut().rev() {
            level.start = start;
            start += level.blocks;
        }
        levels
    }

    /// Returns the chunk size as a `u64`.
    pub(crate) const fn size(&self) -> u64 {
        // A widening cast; `From` is not const.
        #[allow(clippy::as_conversions)]
        {
            self.chunk_size as u64
        }
    }

    /// Returns the chunks that `len` bytes fill from the start of chunk `first`. `None` if they do
    /// not end with a chunk.
    pub(crate) fn whole_chunks(&self, first: u64, len: usize) -> Option<Range<u64>> {
        let start = first.checked_mul(self.size())?;
        let end = start.checked_add(u64_from(len))?;
        let whole = end == self.len || (end < self.len && end.is_multiple_of(self.size()));
        (whole && len > 0).then(|| first..end.div_ceil(self.size()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        for size in [0, 1, 512, 1023, 3 << 10, 2 << 20, u32::MAX] {
            assert_eq!(Geometry::new(1, size), Err(BadGeometry::ChunkSize(size)));
        }
        assert!(Geometry::new(MAX_CHUNKS << 10, 1 << 10).is_ok());
        for len in [(MAX_CHUNKS << 10) + 1, u64::MAX] {
            assert!(Geometry::new(len, 1 << 10).is_err());
        }
    }

    #[test]
    fn chunks_and_bytes() {
        let image = Geometry::new(2500, 1024).unwrap();
        assert_eq!(image.chunks(), 3);
        let lens: Vec<_> = (0..4).map(|chunk| image.len_of(chunk)).collect();
        assert_eq!(lens, [1024, 1024, 452, 0]);
        for (bytes, chunks) in [
            (0..1, 0..1),
            (0..1024, 0..1),
            (1023..1025, 0..2),
            (2048..9999, 2..3),
            (5..5, 0..0),
            (9999..10000, 2..2),
        ] {
            assert_eq!(image.chunks_of(&bytes), chunks, "{bytes:?}");
        }
        assert_eq!(image.whole_chunks(1, 1024), Some(1..2));
        assert_eq!(image.whole_chunks(1, 1476), Some(1..3));
        for (first, len) in [
            (0, 0),
            (0, 100),
            (2, 451),
            (2, 453),
            (3, 1),
            (u64::MAX, 1024),
        ] {
            assert_eq!(image.whole_chunks(first, len), None, "{first} {len}");
        }
    }

    #[test]
    fn levels_follow_from_the_top_down() {
        // Blocks of 1 KiB hold 32 digests.
        let blocks = |chunks: u64| {
            let image = Geometry::new(chunks << 10, 1 << 10).unwrap();
            let levels = image.levels();
            let shape: Vec<_> = levels
                .iter()
                .map(|level| (level.start, level.blocks))
                .collect();
            (image.table_len(), shape)
        };
        assert_eq!(blocks(0), (0, vec![]));
        assert_eq!(blocks(1), (32, vec![]));
        assert_eq!(blocks(2), (1024, vec![(0, 1)]));
        assert_eq!(blocks(32), (1024, vec![(0, 1)]));
        assert_eq!(blocks(33), (3 << 10, vec![(1, 2), (0, 1)]));
        assert_eq!(blocks(1025), (36 << 10, vec![(3, 33), (1, 2), (0, 1)]));
    }
}
