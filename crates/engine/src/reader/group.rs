//! Groups: files of a list that lie in one block, which one thread decodes for all of them.
//!
//! A list of many, but not all, small files of an image, in physical order, wants few files of each
//! block. Through the cache this works badly: blocks that the pool decodes ahead evict each other
//! before they are read, since no block is served to its end, and threads that read files of one
//! block wait for each other.

use std::ops::{ControlFlow, Range};

use forerun_io::{Counter, u64_from, usize_from};
use forerun_vfs::{BlobId, EncodedBlock, NodeId, Place, Result};

use super::{Bulk, Reader, TakenFile};
use crate::Data;
use crate::read::{Allowance, Block, Moves};

/// Whether a [list](Reader::bulk_at) has all files that the caller will read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Other lists follow and may need the same blocks, so all blocks are cached.
    Part,
    /// The list has all files, as far as the caller knows. A long list then leaves blocks out of
    /// the cache and reuses the warm memory of one block for the next: fresh memory costs a fifth
    /// of the time that it takes to decode a gzip block. If another list wants such a block again,
    /// it is cached.
    All,
}

#[derive(Clone, Copy, Debug)]
pub struct FilePlace {
    /// The offset of its first byte, or the start of the image for files without data and for files
    /// that the driver cannot map.
    pub(super) start: (BlobId, u64),
    /// The block that holds the whole file, if one does.
    pub(super) within: Option<Within>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Within {
    pub block: EncodedBlock,
    /// Offset of the file in the decoded block.
    skip: u32,
    /// Whether the block holds nothing else.
    pub is_all: bool,
}

impl FilePlace {
    /// Returns the place of a file whose block is not known.
    pub(super) const fn alone(start: (BlobId, u64)) -> Self {
        Self {
            start,
            within: None,
        }
    }

    pub(super) fn of(reader: &Reader, node: NodeId, size: u64) -> Self {
        let mut place = Self::alone((BlobId::IMAGE, 0));
        let _fails_when_read = reader.fs().map(node, 0..size.max(1), &mut |extent| {
            match extent.place {
                Place::Stored { blob, offset } => place.start = (blob, offset),
                Place::Encoded { block, skip } => {
                    let is_whole = extent.logical.start == 0 && extent.logical.end >= size;
                    place.start = (block.blob, block.offset);
                    place.within = is_whole.then(|| Within {
                        block,
                        skip,
                        is_all: extent.is_whole_block(),
                    });
                }
                Place::Zero | Place::Inline(_) => {}
            }
            ControlFlow::Break(())
        });
        place
    }
}

pub struct GroupBlock<'b> {
    reader: &'b Reader,
    block: Block,
}

impl Bulk {
    /// Decodes the block that holds the files of a [group](Self::take_group). Returns `None` if the
    /// group is a single file with blocks of its own.
    ///
    /// # Errors
    /// The errors of reading and decoding the block.
    pub fn read_block(&self, group: &[TakenFile]) -> Result<Option<GroupBlock<'_>>> {
        let Some(within) = group.first().and_then(|file| file.within) else {
            return Ok(None);
        };
        let reader = self.reader();
        let block = reader.decoded(&within.block, self.allowance.as_ref())?;
        Ok(Some(GroupBlock { reader, block }))
    }
}

impl Reader {
    pub(super) fn allowance(&self) -> Allowance {
        self.inner.moves.decoded.allowance()
    }

    fn decoded(&self, block: &EncodedBlock, allowance: Option<&Allowance>) -> Result<Block> {
        let Moves {
            decoded, stored, ..
        } = &*self.inner.moves;
        match allowance {
            None => decoded.get(block, stored),
            Some(allowance) => decoded.get_in_passing(block, stored, allowance),
        }
    }

    fn served_of(&self, block: &Block, bytes: u64) {
        self.inner.moves.decoded.served(block, bytes);
        self.observer().stats().add(Counter::ServedBytes, bytes);
    }
}

impl GroupBlock<'_> {
    /// Returns a range of a file of the group, or `None` if the block does not hold it.
    /// [`Bulk::read`] then reports the error.
    #[must_use]
    pub fn part(&self, taken: &TakenFile, range: Range<u64>) -> Option<Data> {
        let observer = self.reader.observer();
        let timer = observer.timer();
        let skip = u64::from(taken.within?.skip);
        let at = |offset: u64| usize_from(offset + skip);
        let data = self.block.clone().into_data();
        let data = data.part(at(range.start)..at(range.end))?;
        let len = u64_from(data.len());
        self.reader.served_of(&self.block, len);
        observer.file_read(timer, taken.node.0, (range.start, len), true);
        Some(data)
    }
}
