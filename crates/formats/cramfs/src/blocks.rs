//! The blocks of a file: its table of pointers, resolved to extents.
//!
//! A pointer holds the end of its block, which is the start of the next one. With the flag
//! `EXT_BLOCK_POINTERS` a pointer may also mark its block as uncompressed, and may hold the start
//! of the block instead of its end.

use std::ops::{ControlFlow, Range};

use forerun_io::BlobId;
use forerun_vfs::{Codec, DecodedLen, EncodedBlock, Extent, NodeId, Padding, Place, Result};

use crate::error::Check;
use crate::image::Image;
use crate::inode::Inode;
use crate::ondisk::{BLK_DIRECT_PTR, BLK_UNCOMPRESSED, BLOCK, POINTER_LEN, STORED_MAX, UNIT, word};

/// The table of block pointers of a regular file or symbolic link that is not empty.
pub struct Table<'a> {
    image: &'a Image,
    node: NodeId,
    size: u64,
    start: u64,
    /// Offset after the last pointer.
    end: u64,
}

struct Stored {
    range: Range<u64>,
    compressed: bool,
}

impl<'a> Table<'a> {
    /// Locates the table. Fails with `Corrupt` if it does not lie in the image.
    pub fn new(image: &'a Image, node: NodeId, inode: &Inode) -> Result<Self> {
        let (start, blocks) = (inode.offset, inode.blocks());
        let len = blocks * POINTER_LEN;
        if start < image.superblock.end() || !image.contains(start, len) {
            let check = Check::TableOutside {
                table: start,
                blocks,
                image_len: image.superblock.image_len,
            };
            return Err(check.at(Some(node), node.0));
        }
        Ok(Self {
            image,
            node,
            size: u64::from(inode.size),
            start,
            end: start + len,
        })
    }

    /// Visits the extents of the blocks that `range` touches, until the visitor breaks.
    pub fn map(
        &self,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let end = range.end.min(self.size);
        if range.start >= end {
            return Ok(());
        }
        let (first, behind) = (range.start / BLOCK, end.div_ceil(BLOCK));
        let mut pointers = self.pointers(first.saturating_sub(1)..behind)?;
        // The end of the previous block is needed, but not its start.
        let mut previous = match first.checked_sub(1) {
            None => self.end,
            Some(before) => match pointers.next() {
                Some(pointer) => self.resolve(before, pointer, None)?.range.end,
                None => self.end,
            },
        };
        for (block, pointer) in (first..).zip(pointers) {
            let stored = self.resolve(block, pointer, Some(previous))?;
            previous = stored.range.end;
            if visit(self.extent(block, &stored)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Reads the pointers of some blocks: at most 4096, because a size has 24 bits.
    fn pointers(&self, blocks: Range<u64>) -> Result<impl Iterator<Item = u32>> {
        let order = self.image.superblock.order;
        let len = (blocks.end - blocks.start) * POINTER_LEN;
        let bytes = self.image.read(self.pointer_at(blocks.start), len)?;
        let (words, _) = bytes.as_chunks::<4>();
        let words: Vec<u32> = words.iter().map(|bytes| word(bytes, 0, order)).collect();
        Ok(words.into_iter())
    }

    fn pointer_at(&self, block: u64) -> u64 {
        self.start + block * POINTER_LEN
    }

    /// Returns the range of the block of `pointer`. `previous` is the end of the block before it.
    /// If it is `None`, the block is taken as empty, for callers that need only its end.
    fn resolve(&self, block: u64, pointer: u32, previous: Option<u64>) -> Result<Stored> {
        let fail = |check: Check| Err(check.at(Some(self.node), self.pointer_at(block)));
        let extended = self.image.superblock.has_pointer_flags();
        let flags = if extended {
            pointer & (BLK_DIRECT_PTR | BLK_UNCOMPRESSED)
        } else {
            0
        };
        let (value, compressed) = (u64::from(pointer & !flags), flags & BLK_UNCOMPRESSED == 0);
        let range = if flags & BLK_DIRECT_PTR == 0 {
            // Blocks follow their table, unless pointers have flags and may lead anywhere.
            let least = if extended { 0 } else { self.end };
            let start = previous.unwrap_or_else(|| value.max(least));
            if value < start {
                return fail(Check::BlockBackwards {
                    block,
                    start,
                    end: value,
                });
            }
            start..value
        } else {
            self.direct(block, value * UNIT, compressed)?
        };
        let image_len = self.image.superblock.image_len;
        if range.end > image_len {
            let Range { start, end } = range;
            return fail(Check::BlockOutside {
                block,
                start,
                end,
                image_len,
            });
        }
        Ok(Stored { range, compressed })
    }

    /// Returns the range of a block by its start. A compressed block begins with its length in 16
    /// bits; an uncompressed block is as long as its part of the file.
    fn direct(&self, block: u64, start: u64, compressed: bool) -> Result<Range<u64>> {
        if !compressed {
            return Ok(start..start + self.decoded_len(block));
        }
        let data = start + 2;
        if !self.image.contains(start, 2) {
            let check = Check::BlockOutside {
                block,
                start,
                end: data,
                image_len: self.image.superblock.image_len,
            };
            return Err(check.at(Some(self.node), self.pointer_at(block)));
        }
        let len = self.image.read(start, 2)?;
        let len = len.first_chunk().copied().unwrap_or_default();
        Ok(data..data + u64::from(self.image.superblock.order.u16(len)))
    }

    /// Returns how many bytes of the file a block holds.
    fn decoded_len(&self, block: u64) -> u64 {
        BLOCK.min(self.size - block * BLOCK)
    }

    fn extent(&self, block: u64, stored: &Stored) -> Result<Extent> {
        let fail = |check: Check| Err(check.at(Some(self.node), self.pointer_at(block)));
        let expected = self.decoded_len(block);
        let Range { start, end } = stored.range;
        let len = end - start;
        let place = if len == 0 {
            Place::Zero
        } else if !stored.compressed {
            if len != expected {
                return fail(Check::StoredLen {
                    block,
                    len,
                    expected,
                });
            }
            Place::Stored {
                blob: BlobId::IMAGE,
                offset: start,
            }
        } else {
            let (Ok(stored_len), Ok(decoded_len), true) = (
                u32::try_from(len),
                u32::try_from(expected),
                len <= STORED_MAX,
            ) else {
                let limit = STORED_MAX;
                return fail(Check::BlockLen { block, len, limit });
            };
            let block = EncodedBlock {
                blob: BlobId::IMAGE,
                offset: start,
                len: stored_len,
                codec: Codec::Zlib,
                decoded_len: DecodedLen::Exact(decoded_len),
                padding: Padding::None,
            };
            Place::Encoded { block, skip: 0 }
        };
        let logical = block * BLOCK..block * BLOCK + expected;
        Ok(Extent { logical, place })
    }
}
