//! Salvage: reads what is left of a truncated or damaged image.
//!
//! Readable inodes and listings keep their names. Inodes that no listing names go to the directory
//! `lost+found`, by number. Fragment blocks without a table are searched between the data of files.
//! Data that no inode refers to becomes guessed files, also in `lost+found`.
//!
//! Opening reads all metadata, and the data that no inode refers to.

mod carve;
mod driver;
mod fragments;
mod inodes;
mod search;

use std::collections::HashMap;
use std::sync::Arc;

use forerun_io::{Limits, ReadAt, usize_from};
use forerun_vfs::{NodeId, OpenWith, Result};

use crate::Squashfs;
use crate::image::Image;
use crate::ondisk::flags;
use crate::superblock::HEAD;
use carve::Carved;
pub use driver::Salvaged;
use fragments::Usage;
use inodes::Known;
use search::{FoundBlock, Search};

/// Memory limit of the search, in bytes for each node or block.
const NODE: u64 = 128;

/// Opens an image that may be damaged.
///
/// # Errors
/// Only if the superblock makes no sense or cannot be read.
pub fn open(with: OpenWith) -> Result<Salvaged> {
    let source = Arc::clone(&with.metadata);
    let most = most(&with.limits);
    let mut warnings = Vec::new();
    let mut image = Image::open_damaged(with, &mut |error| warnings.push(error.to_string()))?;
    let declared = image.superblock.declared_len;
    let is_cut = declared > image.superblock.bytes_used;
    if is_cut {
        let have = image.superblock.bytes_used;
        warnings.push(format!(
            "the superblock says {declared} bytes, the source has {have}"
        ));
    }
    let known = inodes::search(&image, most);
    let carved = data(&mut image, &*source, &known, (most, is_cut), &mut warnings);
    warnings.extend(told(&image, &known, &carved));
    Ok(Salvaged::new(Squashfs::new(image), known, carved, warnings))
}

fn most(limits: &Limits) -> usize {
    usize_from(limits.tree_entries.min(limits.walk_bytes / NODE))
}

fn told(image: &Image, known: &Known, carved: &[Carved]) -> Vec<String> {
    let mut told = Vec::new();
    let (have, all) = (known.inodes.len(), image.superblock.inodes);
    if !known.is_complete {
        told.push(format!("{have} of {all} inodes can be read"));
    }
    if !known.orphans.is_empty() {
        let orphans = known.orphans.len();
        told.push(format!("{orphans} inodes are in no directory"));
    }
    if !carved.is_empty() {
        let files = carved.len();
        told.push(format!(
            "{files} files were joined by guess from data without an inode"
        ));
    }
    if known.is_cut {
        told.push("the search for inodes ended at a limit".into());
    }
    told
}

/// Finds missing fragment blocks, and data that no inode refers to.
fn data(
    image: &mut Image,
    source: &dyn ReadAt,
    known: &Known,
    (most, is_cut): (usize, bool),
    warnings: &mut Vec<String>,
) -> Vec<Carved> {
    let mut usage = Usage::of(image, &known.inodes);
    let missing = missing(image, &mut usage, most);
    let lost = missing.iter().filter(|(_, len)| len.is_some()).count();
    if lost == 0 && known.is_complete {
        return Vec::new();
    }
    let superblock = &image.superblock;
    let end = superblock.inode_table.min(superblock.bytes_used);
    let mut search = Search::new(source, superblock.codec, superblock.block_size, most);
    for gap in usage.gaps(start_of_data(image)..end) {
        search.part(gap);
    }
    if search.is_cut {
        warnings.push("the search for data ended at a limit".into());
    }
    let mut blocks = search.found;
    if is_cut && end == superblock.bytes_used {
        leave_rest_out(&mut blocks, end, u64::from(superblock.block_size));
    }
    let assigned = fragments::assign(&missing, &blocks);
    let used: HashMap<u64, ()> = assigned
        .iter()
        .map(|(_, block)| (block.offset, ()))
        .collect();
    if lost > 0 {
        let found = assigned.len();
        warnings.push(format!(
            "{found} of {lost} fragments without an entry in the table were found"
        ));
    }
    if let Some(salvage) = &mut image.salvage {
        let entries = assigned.into_iter();
        let entries = entries.filter_map(|(index, block)| Some((index, fragments::entry(block)?)));
        salvage.fragments.extend(entries);
    }
    blocks.retain(|block| !used.contains_key(&block.offset));
    carve::carve(&blocks, image.superblock.block_size)
}

/// Drops the truncated block at `end`. Whole blocks before it may be uncompressed data, and stay.
fn leave_rest_out(blocks: &mut Vec<FoundBlock>, end: u64, block_size: u64) {
    let Some(mut last) = blocks.pop_if(|block| block.is_raw && block.end() == end) else {
        return;
    };
    last.stored -= last.stored % block_size;
    last.decoded = last.stored;
    if last.stored > 0 {
        blocks.push(last);
    }
}

/// Returns the numbers of fragments whose location is unknown, with their lengths if files use
/// them. Adds the other fragments to `usage`.
fn missing(image: &mut Image, usage: &mut Usage, most: usize) -> Vec<(u32, Option<u64>)> {
    let node = NodeId(0);
    let last = usage.lens.last_key_value().map_or(0, |(&last, _)| last);
    let count = image.superblock.fragments.min(last.saturating_add(1));
    if usage.lens.is_empty() || u64::from(count) > forerun_io::u64_from(most) {
        return Vec::new();
    }
    let is_whole = usage
        .lens
        .keys()
        .all(|&index| image.fragment(index, node).is_ok());
    if !is_whole {
        let found = fragments::from_blocks(image);
        let unread = found
            .into_iter()
            .filter(|(index, _)| image.fragment(*index, node).is_err());
        let unread: Vec<_> = unread.collect();
        if let Some(salvage) = &mut image.salvage {
            salvage.fragments.extend(unread);
        }
    }
    let mut missing = Vec::new();
    for index in 0..count {
        match image.fragment(index, node) {
            Ok(entry) => {
                let size = entry.size.get() & !crate::ondisk::BLOCK_STORED;
                let start = entry.start_block.get();
                let end = start.checked_add(u64::from(size));
                usage.ranges.extend(end.map(|end| start..end));
            }
            Err(_) => missing.push((index, usage.lens.get(&index).copied())),
        }
    }
    missing
}

/// Returns where data starts: after the superblock and the compressor options.
fn start_of_data(image: &Image) -> u64 {
    if image.superblock.flags & flags::COMPRESSOR_OPTIONS == 0 {
        return HEAD;
    }
    let mut header = [0; 2];
    match image.blocks.read(HEAD, &mut header) {
        Ok(()) => {
            let len = image.blocks.len_in(header);
            HEAD + 2 + u64::from(len)
        }
        Err(_) => HEAD,
    }
}
