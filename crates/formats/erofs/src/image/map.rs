//! Maps ranges of an inode to extents.

use std::ops::{ControlFlow, Range};

use forerun_io::{ReadAt, u32_from, usize_from};
use forerun_vfs::{BlobId, Error, Extent, Place, Result};

use super::{Image, Metadata, chunk};
use crate::address::Space;
use crate::device;
use crate::error::Check;
use crate::inode::{DataLayout, Inode};
use crate::ondisk::incompat;
use crate::zmap::{self, Piece};

pub type Visit<'v> = dyn FnMut(Extent) -> ControlFlow<()> + 'v;

/// Visits the extents of `range`, clamped to the size of `inode`. Accepts every file type.
pub fn map(image: &Image, inode: &Inode, range: Range<u64>, visit: &mut Visit<'_>) -> Result<()> {
    let range = range.start..range.end.min(inode.size);
    if range.is_empty() {
        return Ok(());
    }
    match inode.layout {
        DataLayout::Plain => flat(image, inode, 0..inode.size, &range, visit).map(|_| ()),
        DataLayout::Inline => inline(image, inode, &range, visit),
        DataLayout::Chunks => {
            let wanted = range.clone();
            // Merged chunks that span two devices give extents before or after the range too. Skip
            // those.
            let inside = &mut |extent: Extent| {
                if extent.logical.end <= wanted.start {
                    ControlFlow::Continue(())
                } else if extent.logical.start >= wanted.end {
                    ControlFlow::Break(())
                } else {
                    visit(extent)
                }
            };
            chunk::map(image, inode, &range, inside)
        }
        DataLayout::CompressedFull | DataLayout::CompressedCompact => {
            compressed(image, inode, range, visit)
        }
    }
}

/// Visits the overlap of `range` with `blocks`, the part of the file that is stored in blocks.
fn flat(
    image: &Image,
    inode: &Inode,
    blocks: Range<u64>,
    range: &Range<u64>,
    visit: &mut Visit<'_>,
) -> Result<ControlFlow<()>> {
    let logical = range.start.max(blocks.start)..range.end.min(blocks.end);
    if logical.is_empty() {
        return Ok(ControlFlow::Continue(()));
    }
    match inode.start_block() {
        Some(block) => {
            let start = image.superblock.block_at(block);
            let Some(first) = start.checked_add(logical.start) else {
                let (len, node, at) = (logical.end, inode.node, inode.at.offset);
                return Err(device::outside(start, len, image.source.len(), node, at));
            };
            stored(image, inode, 0, first, logical, visit)
        }
        None => Ok(visit(Extent {
            logical,
            place: Place::Zero,
        })),
    }
}

fn inline(image: &Image, inode: &Inode, range: &Range<u64>, visit: &mut Visit<'_>) -> Result<()> {
    let block_size = image.superblock.block_size();
    // A full last block counts as inline too: it would have to follow the inode.
    let behind = match inode.size % block_size {
        0 => block_size.min(inode.size),
        len => len,
    };
    let in_blocks = inode.size - behind;
    if flat(image, inode, 0..in_blocks, range, visit)?.is_break() || range.end <= in_blocks {
        return Ok(());
    }
    let (tail, len) = (inode.end(), inode.size - in_blocks);
    let fail = |check: Check| Err(check.at(Some(inode.node), inode.at.offset));
    if tail.offset % block_size + len > block_size {
        let start = tail.offset;
        return fail(Check::InlineTail { start, len });
    }
    image.inside(tail, len, "end of the file", Some(inode.node))?;
    let place = match tail.space {
        Space::Image => {
            let (blob, offset) = (BlobId::IMAGE, tail.offset);
            Place::Stored { blob, offset }
        }
        Space::Metabox => {
            // Less than a block.
            let mut bytes = vec![0; usize_from(len)];
            image.read(tail, &mut bytes, "end of the file", Some(inode.node))?;
            Place::Inline(bytes.into())
        }
    };
    let _last = visit(Extent {
        logical: in_blocks..inode.size,
        place,
    });
    Ok(())
}

/// Visits stored bytes that start at offset `start` of `device`. Visits several extents if they
/// continue on another device.
pub fn stored(
    image: &Image,
    inode: &Inode,
    device: u16,
    start: u64,
    logical: Range<u64>,
    visit: &mut Visit<'_>,
) -> Result<ControlFlow<()>> {
    let (mut at, mut start) = (logical.start, start);
    while at < logical.end {
        let place = image.devices.resolve(device, start);
        let (blob, offset, most) =
            place.map_err(|check| check.at(Some(inode.node), inode.at.offset))?;
        let len = most.clamp(1, logical.end - at);
        let most = match blob {
            BlobId::IMAGE => image.source.len(),
            _ => Extent::LAST,
        };
        if offset.checked_add(len).is_none_or(|end| end > most) {
            let (node, at) = (inode.node, inode.at.offset);
            return Err(device::outside(offset, len, most, node, at));
        }
        let logical = at..at + len;
        let place = Place::Stored { blob, offset };
        if visit(Extent { logical, place }).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        at += len;
        start += len;
    }
    Ok(ControlFlow::Continue(()))
}

/// Returns the range of the metadata after the inode that holds its chunk table, or the header and
/// index of its compressed data. Empty for other layouts.
pub fn index(image: &Image, inode: &Inode) -> Result<Range<u64>> {
    let start = inode.end().offset;
    let end = match inode.layout {
        DataLayout::Plain | DataLayout::Inline => start,
        DataLayout::Chunks => chunk::Chunks::of(image, inode)?.end(),
        DataLayout::CompressedFull | DataLayout::CompressedCompact if inode.size == 0 => start,
        DataLayout::CompressedFull | DataLayout::CompressedCompact => {
            let end = with_index(image, inode, false, |meta, config, inode| {
                zmap::index_end(meta, config, inode)
            });
            end.map_err(original)?
        }
    };
    Ok(start..end)
}

fn compressed(
    image: &Image,
    inode: &Inode,
    range: Range<u64>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let mut result = Ok(());
    let mut place = |piece| match piece {
        Piece::Extent(extent) => visit(extent),
        Piece::Stored { .. } => ControlFlow::Continue(()),
        Piece::Fragment { logical, offset } => {
            let part = logical.start.max(range.start)..logical.end.min(range.end);
            let skip = part.start - logical.start;
            match fragment(image, inode, part, (offset, skip), visit) {
                Ok(flow) => flow,
                Err(error) => {
                    result = Err(error);
                    ControlFlow::Break(())
                }
            }
        }
    };
    let mapped = with_index(image, inode, false, |meta, config, inode| {
        zmap::map(meta, config, inode, range.clone(), &mut place)
    });
    mapped.map_err(original)?;
    result
}

/// Visits the extents of a compressed inode as its index has them: the range in the file, and the
/// range of the stored blocks if the extent has blocks.
pub fn stored_extents(
    image: &Image,
    inode: &Inode,
    visit: &mut dyn FnMut(Range<u64>, Option<Range<u64>>) -> ControlFlow<()>,
) -> Result<()> {
    if inode.size == 0 {
        return Ok(());
    }
    let mapped = with_index(image, inode, true, |meta, config, compressed| {
        let each = &mut |piece| match piece {
            Piece::Stored { logical, at } => visit(logical, Some(at)),
            Piece::Extent(Extent { logical, .. }) | Piece::Fragment { logical, .. } => {
                visit(logical, None)
            }
        };
        zmap::map(meta, config, compressed, 0..inode.size, each)
    });
    mapped.map_err(original)
}

/// Returns the warning about a compressed tail behind an index that the superblock does not announce.
pub fn unannounced_tail(image: &Image, inode: &Inode) -> Result<Option<Error>> {
    if !inode.layout.is_compressed() || inode.size == 0 {
        return Ok(None);
    }
    with_index(image, inode, false, zmap::unannounced_tail).map_err(original)
}

/// Calls `f` with the metadata source, settings and inode that zmap needs.
fn with_index<T>(
    image: &Image,
    inode: &Inode,
    as_stored: bool,
    f: impl FnOnce(&dyn ReadAt, &zmap::Config<'_>, &zmap::CompressedInode) -> Result<T>,
) -> Result<T> {
    let meta = Metadata {
        image,
        space: inode.at.space,
        node: inode.node,
    };
    let compressed = zmap::CompressedInode {
        node: inode.node,
        size: inode.size,
        end: inode.end().offset,
        layout: match inode.layout {
            DataLayout::CompressedFull => zmap::IndexLayout::Full,
            _ => zmap::IndexLayout::Compact,
        },
        in_image: inode.at.space == Space::Image,
    };
    let locate = |at: u64| {
        let (blob, offset, most) = image.devices.resolve(0, at).ok()?;
        if blob != BlobId::IMAGE {
            return Some((blob, offset, most));
        }
        let left = image.source.len().checked_sub(offset)?;
        (left > 0).then_some((blob, offset, most.min(left)))
    };
    let config = zmap::Config {
        block_bits: image.superblock.block_bits,
        features: image.superblock.feature_incompat,
        algorithms: if image.superblock.has(incompat::COMPR_CFGS) {
            image.superblock.algorithms
        } else {
            1
        },
        locate: &locate,
        sums: &image.sums,
        as_stored,
    };
    f(&meta, &config, &compressed)
}

/// Maps `logical`, which lies in a fragment, to extents of the packed inode. The fragment starts at
/// `offset` of the packed inode, and `logical` starts `skip` bytes into the fragment.
fn fragment(
    image: &Image,
    inode: &Inode,
    logical: Range<u64>,
    (offset, skip): (u64, u64),
    visit: &mut Visit<'_>,
) -> Result<ControlFlow<()>> {
    let fail = |check: Check| Err(check.at(Some(inode.node), inode.at.offset));
    let Some(packed) = &image.packed else {
        return fail(Check::NoPackedInode);
    };
    let is = |other: &Option<Inode>| other.as_ref().is_some_and(|other| other.node == inode.node);
    // A fragment of the packed inode, or of the metabox that may hold it, would recurse.
    if is(&image.packed) || is(&image.metabox) {
        return fail(Check::FragmentLoop);
    }
    let (size, len) = (packed.size, logical.end - logical.start);
    let start = offset.checked_add(skip).filter(|&start| start <= size);
    let Some(start) = start.filter(|&start| len <= size - start) else {
        let (start, end) = (offset, offset.saturating_add(skip).saturating_add(len));
        return fail(Check::Fragment { start, end, size });
    };
    let end = start + len;
    let mut flow = ControlFlow::Continue(());
    map(image, packed, start..end, &mut |extent| {
        flow = match moved(extent, &(start..end), logical.start) {
            Some(extent) => visit(extent),
            None => ControlFlow::Continue(()),
        };
        flow
    })?;
    Ok(flow)
}

/// Returns the overlap of `extent` and `part`, moved so that `part` would begin at `to`.
fn moved(extent: Extent, part: &Range<u64>, to: u64) -> Option<Extent> {
    let start = extent.logical.start.max(part.start);
    let end = extent.logical.end.min(part.end);
    if start >= end {
        return None;
    }
    let before = start - extent.logical.start;
    let place = match extent.place {
        Place::Zero => Place::Zero,
        Place::Stored { blob, offset } => Place::Stored {
            blob,
            offset: offset + before,
        },
        // Encoded extents are shorter than 2^32 bytes.
        Place::Encoded { block, skip } => Place::Encoded {
            block,
            skip: skip + u32_from(before),
        },
        Place::Inline(bytes) => {
            let from = usize_from(before);
            let len = usize_from(end - start);
            Place::Inline(bytes.get(from..from + len)?.into())
        }
    };
    Some(Extent {
        logical: to + (start - part.start)..to + (end - part.start),
        place,
    })
}

/// Unwraps the driver's own error from the I/O error that zmap got when it read metadata.
fn original(error: Error) -> Error {
    if let Error::Io { source, .. } = &error
        && let Some(inner) = source.get_ref()
        && let Some(original) = inner.downcast_ref::<Error>()
    {
        return original.clone();
    }
    error
}
