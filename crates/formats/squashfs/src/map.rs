//! Maps ranges of a file to blocks.

use std::ops::{ControlFlow, Range};

use forerun_io::u32_from;
use forerun_vfs::{
    BlobId, DecodedLen, EncodedBlock, Error, Extent, NodeId, Padding, Place, Result,
};

use crate::error::Check;
use crate::image::Image;
use crate::inode::{File, Fragment};
use crate::ondisk::{BLOCK_STORED, FragmentEntry};
use crate::positions::Mark;

/// Block sizes between two remembered positions. A random read walks over half as many on average,
/// which should cost less than the rest of the read.
const MARK_EVERY: u64 = 256;

/// Visits the extents of `range`, which must be inside the file and not empty.
pub fn map(
    image: &Image,
    node: NodeId,
    file: &File,
    range: Range<u64>,
    visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
) -> Result<()> {
    let block_size = u64::from(image.superblock.block_size);
    let in_blocks = file.size.min(file.blocks * block_size);
    if range.start < in_blocks
        && blocks(
            image,
            node,
            file,
            range.start..range.end.min(in_blocks),
            visit,
        )?
        .is_break()
    {
        return Ok(());
    }
    if let Some(fragment) = file.fragment
        && range.end > in_blocks
    {
        let _last = visit(Extent {
            logical: in_blocks..file.size,
            place: tail(image, node, fragment, file.size - in_blocks)?,
        });
    }
    Ok(())
}

fn blocks(
    image: &Image,
    node: NodeId,
    file: &File,
    range: Range<u64>,
    visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    let block_size = u64::from(image.superblock.block_size);
    let (first, end) = (range.start / block_size, range.end.div_ceil(block_size));
    let start = Mark {
        at: 0,
        reference: file.sizes,
        data: file.start,
    };
    let known = (first >= MARK_EVERY).then(|| image.positions.before(node, first));
    let mark = known.flatten().unwrap_or(start);
    let mut cursor = image.inodes_at(mark.reference, node)?;
    let (mut index, mut offset) = (mark.at, mark.data);
    while index < end {
        if index % MARK_EVERY == 0 && index > mark.at {
            let reference = cursor.reference();
            image.positions.note(
                node,
                Mark {
                    at: index,
                    reference,
                    data: offset,
                },
            );
        }
        let size = image.block_word(&mut cursor, node, file)?;
        let logical = index * block_size..file.size.min((index + 1) * block_size);
        let len = u32_from(logical.end - logical.start);
        let block = DataBlock { index, offset, len };
        let stored = u64::from(size & !BLOCK_STORED);
        if index >= first {
            let place = block.place(image, size);
            let place = place.map_err(|check| check.at(Some(node), cursor.offset()))?;
            if visit(Extent { logical, place }).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        offset = offset.checked_add(stored).ok_or_else(|| {
            let check = block.outside(image, u64::MAX);
            check.at(Some(node), cursor.offset())
        })?;
        index += 1;
    }
    Ok(ControlFlow::Continue(()))
}

/// Returns the warning about a last block that is not compressed, and longer than its part of the
/// file.
pub fn long_block(image: &Image, node: NodeId, file: &File) -> Result<Option<Error>> {
    let Some(last) = file.blocks.checked_sub(1) else {
        return Ok(None);
    };
    let mut cursor = image.inodes_at(file.sizes, node)?;
    for _ in 0..last {
        image.block_word(&mut cursor, node, file)?;
    }
    let word = image.block_word(&mut cursor, node, file)?;
    let block_size = image.superblock.block_size;
    let rest = file.size - last * u64::from(block_size);
    let len = u32_from(rest.min(block_size.into()));
    let stored = word & !BLOCK_STORED;
    if word & BLOCK_STORED == 0 || stored <= len || stored > block_size {
        return Ok(None);
    }
    let block = last;
    let check = Check::BlockLen { block, stored, len };
    Ok(Some(check.at(Some(node), cursor.offset())))
}

struct DataBlock {
    index: u64,
    offset: u64,
    len: u32,
}

impl DataBlock {
    const fn outside(&self, image: &Image, end: u64) -> Check {
        Check::BlockOutside {
            block: self.index,
            start: self.offset,
            end,
            image: image.superblock.bytes_used,
        }
    }
    fn place(&self, image: &Image, size: u32) -> Result<Place, Check> {
        let (block, stored) = (self.index, size & !BLOCK_STORED);
        if size == 0 {
            return Ok(Place::Zero);
        }
        let is_stored = size & BLOCK_STORED != 0;
        // Linux and unsquashfs take the first bytes of a block that is longer than its part of the
        // file.
        let least = if is_stored { self.len } else { 1 };
        if !(least..=image.superblock.block_size).contains(&stored) {
            let len = self.len;
            return Err(Check::BlockLen { block, stored, len });
        }
        let start = self.offset;
        let end = start.checked_add(u64::from(stored));
        if end.is_none_or(|end| end > image.superblock.bytes_used) {
            return Err(self.outside(image, end.unwrap_or(u64::MAX)));
        }
        Ok(if is_stored {
            Place::Stored {
                blob: BlobId::IMAGE,
                offset: start,
            }
        } else {
            Place::Encoded {
                block: EncodedBlock {
                    blob: BlobId::IMAGE,
                    offset: start,
                    len: stored,
                    codec: image.superblock.codec,
                    decoded_len: DecodedLen::Exact(self.len),
                    padding: Padding::None,
                },
                skip: 0,
            }
        })
    }
}

/// Returns the location of a file's end: `len` bytes of a fragment block.
fn tail(image: &Image, node: NodeId, fragment: Fragment, len: u64) -> Result<Place> {
    let Fragment { index, offset } = fragment;
    let entry: FragmentEntry = image.fragment(index, node)?;
    let (start, size) = (entry.start_block.get(), entry.size.get());
    let (stored, is_stored) = (size & !BLOCK_STORED, size & BLOCK_STORED != 0);
    let block_size = image.superblock.block_size;
    let fail =
        |check: Check| Err(check.at(Some(node), image.superblock.fragment_table.unwrap_or(0)));
    if stored == 0 || stored > block_size {
        return fail(Check::FragmentLen {
            index,
            stored,
            block_size,
        });
    }
    let bytes_used = image.superblock.bytes_used;
    if start
        .checked_add(u64::from(stored))
        .is_none_or(|end| end > bytes_used)
    {
        return fail(Check::FragmentOutside {
            index,
            start,
            stored,
            image: bytes_used,
        });
    }
    let end = u64::from(offset) + len;
    let most = if is_stored { stored } else { block_size };
    if end > u64::from(most) {
        return fail(Check::FragmentRange {
            index,
            offset,
            end,
            len: most,
        });
    }
    Ok(if is_stored {
        Place::Stored {
            blob: BlobId::IMAGE,
            offset: start + u64::from(offset),
        }
    } else {
        Place::Encoded {
            block: EncodedBlock {
                blob: BlobId::IMAGE,
                offset: start,
                len: stored,
                codec: image.superblock.codec,
                decoded_len: DecodedLen::AtMost(block_size),
                padding: Padding::None,
            },
            skip: offset,
        }
    })
}
