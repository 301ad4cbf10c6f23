//! Chunk-based files: a table of chunk addresses follows the inode.

use std::ops::{ControlFlow, Range};

use forerun_io::usize_from;
use forerun_vfs::{Error, Extent, Place, Result};
use zerocopy::FromBytes;

use super::Image;
use super::map::{self, Visit};
use crate::address::Address;
use crate::error::Check;
use crate::inode::{self, Inode};
use crate::ondisk::{ChunkIndex, chunk};

/// Entries read at a time: one page.
const BATCH: u64 = 512;
/// Adjacent chunks are merged into extents of up to this many bytes.
const MERGED: u64 = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// log2 of the chunk length in bytes.
    pub bits: u32,
    pub has_indexes: bool,
    pub is_48: bool,
    /// Position and number of the entries.
    pub at: Address,
    pub count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkEntry {
    pub device: u16,
    /// `None` if the chunk is all zeros.
    pub block: Option<u64>,
}

impl Chunks {
    /// Parses the chunk format of `inode`, whose layout must be `DataLayout::Chunks`.
    pub fn of(image: &Image, inode: &Inode) -> Result<Self> {
        let word = inode.word;
        if word & !chunk::KNOWN != 0 {
            let unknown = word & !chunk::KNOWN;
            let what = format!(
                "chunks of node {} with unknown bits {unknown:#x}",
                inode.node
            );
            return Err(Error::Unsupported(what));
        }
        let bits = (word & chunk::BITS) + u32::from(image.superblock.block_bits);
        let has_indexes = word & chunk::INDEXES != 0;
        let mut at = inode.end();
        at.offset = at.offset.next_multiple_of(if has_indexes { 8 } else { 4 });
        // `bits` is between 9 and 47, and sizes have 62 bits, so the table length cannot overflow.
        let count = inode.size.div_ceil(1 << bits);
        let chunks = Self {
            bits,
            has_indexes,
            is_48: word & chunk::BITS_48 != 0,
            at,
            count,
        };
        let len = count * chunks.entry_len();
        image.inside(at, len, "list of chunks", Some(inode.node))?;
        Ok(chunks)
    }

    pub const fn end(&self) -> u64 {
        self.at.plus(self.count * self.entry_len()).offset
    }

    pub const fn entry_len(&self) -> u64 {
        if self.has_indexes { 8 } else { 4 }
    }

    /// Reads entries from `first` on, at most `BATCH` of them.
    pub fn read(
        &self,
        image: &Image,
        inode: &Inode,
        first: u64,
        end: u64,
    ) -> Result<Vec<ChunkEntry>> {
        let count = (end.min(self.count) - first).min(BATCH);
        let at = self.at.plus(first * self.entry_len());
        let mut bytes = vec![0; usize_from(count * self.entry_len())];
        image.read(at, &mut bytes, "list of chunks", Some(inode.node))?;
        let entries = bytes.chunks(usize_from(self.entry_len()));
        Ok(entries.map(|bytes| self.entry(bytes)).collect())
    }

    fn entry(&self, bytes: &[u8]) -> ChunkEntry {
        match ChunkIndex::read_from_bytes(bytes) {
            Ok(index) => ChunkEntry {
                device: index.device_id.get(),
                block: inode::block(index.startblk_lo.get(), index.startblk_hi.get(), self.is_48),
            },
            Err(_) => {
                let block = bytes.try_into().map_or(u32::MAX, u32::from_le_bytes);
                ChunkEntry {
                    device: 0,
                    block: inode::block(block, 0, false),
                }
            }
        }
    }
}

struct Run {
    logical: Range<u64>,
    /// Device and start offset; `None` for zeros.
    place: Option<(u16, u64)>,
}

impl Run {
    /// Extends this run by `next` if the two are contiguous.
    fn join(&mut self, next: &Self) -> bool {
        let len = self.logical.end - self.logical.start;
        let goes_on = match (self.place, next.place) {
            (None, None) => true,
            (Some((device, at)), Some((other, start))) => {
                device == other && at.checked_add(len) == Some(start) && len < MERGED
            }
            _ => false,
        };
        if goes_on {
            self.logical.end = next.logical.end;
        }
        goes_on
    }

    fn visit(self, image: &Image, inode: &Inode, visit: &mut Visit<'_>) -> Result<ControlFlow<()>> {
        let logical = self.logical;
        match self.place {
            Some((device, start)) => map::stored(image, inode, device, start, logical, visit),
            None => {
                let place = Place::Zero;
                Ok(visit(Extent { logical, place }))
            }
        }
    }
}

/// Visits the extents of `range`, which must be inside the file and not empty.
pub fn map(image: &Image, inode: &Inode, range: &Range<u64>, visit: &mut Visit<'_>) -> Result<()> {
    let chunks = Chunks::of(image, inode)?;
    let (mut index, end) = (
        range.start >> chunks.bits,
        ((range.end - 1) >> chunks.bits) + 1,
    );
    let mut run: Option<Run> = None;
    while index < end {
        let entries = chunks.read(image, inode, index, end)?;
        if entries.is_empty() {
            let at = index << chunks.bits;
            return Err(Check::Gap { at }.at(Some(inode.node), chunks.at.offset));
        }
        for entry in &entries {
            let next = Run {
                logical: index << chunks.bits..inode.size.min((index + 1) << chunks.bits),
                place: entry
                    .block
                    .map(|block| (entry.device, image.superblock.block_at(block))),
            };
            index += 1;
            if run.as_mut().is_some_and(|run| run.join(&next)) {
                continue;
            }
            if let Some(done) = run.replace(next)
                && done.visit(image, inode, visit)?.is_break()
            {
                return Ok(());
            }
        }
    }
    match run {
        Some(run) => run.visit(image, inode, visit).map(|_| ()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_join() {
        let run = |logical: Range<u64>, place| Run { logical, place };
        for (first, second, joins) in [
            (run(0..10, None), run(10..20, None), true),
            (run(0..10, Some((0, 5))), run(10..20, Some((0, 15))), true),
            (run(0..10, Some((0, 5))), run(10..20, Some((1, 15))), false),
            (run(0..10, Some((0, 5))), run(10..20, Some((0, 16))), false),
            (run(0..10, Some((0, 5))), run(10..20, None), false),
            (
                run(0..MERGED, Some((0, 0))),
                run(MERGED..MERGED + 1, Some((0, MERGED))),
                false,
            ),
        ] {
            let mut run = first;
            assert_eq!(run.join(&second), joins);
            assert_eq!(run.logical.end == second.logical.end, joins);
        }
    }
}
