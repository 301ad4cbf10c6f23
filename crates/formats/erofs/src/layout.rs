//! Guesses which ranges of an image hold metadata, as far as that is cheap.
//!
//! The format has no inode table: inodes may be anywhere after `meta_blkaddr`, mixed with data.
//! Three layouts are recognised: metadata first, then data in walk order; data first, then metadata
//! from `meta_blkaddr` to the end; and metadata only, with data on other devices. The result is
//! used only for prefetch, so a wrong guess costs time, not correctness.

use std::ops::{ControlFlow, Range};

use forerun_vfs::{FileSystem, FileType, Limits, Place, Walk};

use crate::address::Space;
use crate::image::{Image, map};

/// Number of nodes examined to find the first data.
const PROBED: usize = 64;
const COMPACT: u64 = 32;
/// Upper bound on the metadata for each inode, with its directory entry, xattrs and inline tail.
const PER_INODE: u64 = 4096;

/// Returns ranges that hold little else than the metadata that a walk reads. Empty if metadata and
/// data cannot be told apart.
pub fn metadata_ranges(fs: &dyn FileSystem, image: &Image) -> Vec<Range<u64>> {
    let superblock = &image.superblock;
    let end = match superblock.blocks {
        0 => image.source.len(),
        blocks => superblock.block_at(blocks).min(image.source.len()),
    };
    if let Some(metabox) = &image.metabox {
        let mut ranges = Vec::new();
        // Ignore errors: reading the metabox will report them.
        let _hint = map::map(image, metabox, 0..metabox.size, &mut |extent| {
            let range = match extent.place {
                Place::Stored { offset, .. } => {
                    offset..offset + (extent.logical.end - extent.logical.start)
                }
                Place::Encoded { block, .. } => block.stored(),
                Place::Zero | Place::Inline(_) => return ControlFlow::Continue(()),
            };
            ranges.push(range.start.min(end)..range.end.min(end));
            ControlFlow::Continue(())
        });
        return merged(ranges);
    }
    if superblock.devices > 0 {
        return std::iter::once(0..end).collect();
    }
    let zone = superblock
        .block_at(u64::from(superblock.meta_block))
        .min(end);
    let root = match image.address(image.root()) {
        Ok(root) if root.space == Space::Image => root.offset.min(end),
        _ => return Vec::new(),
    };
    let data = first_data(fs, image).unwrap_or(end);
    let most = superblock.inodes.saturating_mul(PER_INODE);
    let range = match data > root {
        true => zone.max(root - root % superblock.block_size())..data,
        false if zone > 0 => zone..end,
        false => return Vec::new(),
    };
    let range = range.start..range.end.min(range.start.saturating_add(most)).min(end);
    // A range too small for all inodes is not all of the metadata, so the guess is wrong.
    let least = superblock.inodes.saturating_mul(COMPACT);
    std::iter::once(range)
        .filter(|range| range.start < range.end && range.end - range.start >= least)
        .collect()
}

/// Returns the lowest data offset among the first nodes of a walk.
fn first_data(fs: &dyn FileSystem, image: &Image) -> Option<u64> {
    let limits = Limits::default();
    let mut first: Option<u64> = None;
    for entry in Walk::new(fs, image.root(), &limits).take(PROBED) {
        let inode = image.inode(entry.ok()?.node).ok()?;
        if inode.file_type != FileType::Regular {
            continue;
        }
        // An inline tail follows its inode and counts as metadata.
        let behind = inode.end().offset;
        map::map(image, &inode, 0..inode.size, &mut |extent| {
            let offset = match extent.place {
                Place::Stored { offset, .. } if offset != behind => offset,
                Place::Encoded { block, .. } => block.offset,
                _ => return ControlFlow::Continue(()),
            };
            first = Some(first.map_or(offset, |first| first.min(offset)));
            ControlFlow::Break(())
        })
        .ok()?;
    }
    first
}

fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_by_key(|range| range.start);
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        let ranges = vec![5..7, 0..2, 2..4, 9..9, 6..8];
        assert_eq!(merged(ranges), [0..4, 5..8]);
    }
}
