//! Finds fragment blocks when the fragment table is damaged: they lie between the data of files.
//!
//! Inodes tell which bytes of the image are file data. The bytes between them are fragment blocks,
//! in the order of their numbers. Inodes also tell how long each fragment block is: it ends with
//! the last file in it. A block gets a number where a run of these lengths matches a run of decoded
//! lengths; the others stay unknown.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use forerun_io::u64_from;
use forerun_vfs::NodeId;
use zerocopy::FromBytes;

use super::search::FoundBlock;
use crate::image::Image;
use crate::inode::File;
use crate::ondisk::{BLOCK_STORED, FragmentEntry, METADATA_BLOCK};

/// After a mismatch, this many consecutive lengths must match before numbers are assigned again.
const RUN: usize = 3;
/// Most blocks and numbers that may be missing at a mismatch.
const REACH: usize = 64;
/// Most mismatches that are resolved.
const DIFFERENCES: usize = 4096;

/// The image ranges and fragments that readable files use.
#[derive(Default)]
pub struct Usage {
    pub ranges: Vec<Range<u64>>,
    /// Known lengths of fragment blocks by number.
    pub lens: BTreeMap<u32, u64>,
}

impl Usage {
    /// Collects the ranges and fragments of the files among `inodes`.
    pub fn of(image: &Image, inodes: &[u64]) -> Self {
        let mut usage = Self::default();
        for &node in inodes {
            if let Ok(file) = image.file(NodeId(node)) {
                usage.add(image, NodeId(node), &file);
            }
        }
        usage
    }

    fn add(&mut self, image: &Image, node: NodeId, file: &File) {
        let block_size = u64::from(image.superblock.block_size);
        if let Some(fragment) = file.fragment {
            let end = u64::from(fragment.offset) + file.size % block_size;
            let len = self.lens.entry(fragment.index).or_default();
            *len = (*len).max(end);
        }
        let stored = stored(image, node, file);
        let end = stored.and_then(|stored| file.start.checked_add(stored));
        if let Some(end) = end.filter(|&end| end > file.start) {
            self.ranges.push(file.start..end);
        }
    }

    /// Returns the unused parts of `whole` in order.
    pub fn gaps(&mut self, whole: Range<u64>) -> Vec<Range<u64>> {
        self.ranges.sort_unstable_by_key(|range| range.start);
        let (mut at, mut gaps) = (whole.start, Vec::new());
        for range in &self.ranges {
            let start = range.start.min(whole.end);
            if start > at {
                gaps.push(at..start);
            }
            at = at.max(range.end);
        }
        if at < whole.end {
            gaps.push(at..whole.end);
        }
        gaps
    }
}

/// Returns the total stored length of a file's blocks.
fn stored(image: &Image, node: NodeId, file: &File) -> Option<u64> {
    let mut cursor = image.inodes_at(file.sizes, node).ok()?;
    let mut total = 0_u64;
    for _ in 0..file.blocks {
        let word = image.block_word(&mut cursor, node, file).ok()?;
        let size = word & !BLOCK_STORED;
        total = total.checked_add(u64::from(size))?;
    }
    Some(total)
}

/// Returns fragment table entries found without the table's pointers, by searching the blocks after
/// the directory table. Entries are too regular for a listing to be mistaken for them.
pub fn from_blocks(image: &Image) -> HashMap<u32, FragmentEntry> {
    let superblock = &image.superblock;
    let count = u64::from(superblock.fragments);
    let mut found = HashMap::new();
    let mut at = superblock.directory_table;
    let mut number = 0_u32;
    while let Ok(block) = image.blocks.get(at, superblock.bytes_used, None) {
        at += block.stored_len();
        let left = count.saturating_sub(u64::from(number)) * 16;
        let expected = left.min(u64_from(METADATA_BLOCK));
        let entries =
            entries(image, block.data()).filter(|_| u64_from(block.data().len()) == expected);
        match entries {
            Some(entries) if expected > 0 => {
                for entry in entries {
                    found.insert(number, entry);
                    number += 1;
                }
            }
            _ if number > 0 => break,
            _ => {}
        }
    }
    found
}

/// Parses a block of the fragment table. Returns `None` unless its entries point to consecutive,
/// increasing ranges.
fn entries(image: &Image, data: &[u8]) -> Option<Vec<FragmentEntry>> {
    let superblock = &image.superblock;
    let mut entries = Vec::new();
    let mut before = crate::superblock::HEAD;
    let (chunks, rest) = data.as_chunks::<16>();
    if !rest.is_empty() {
        return None;
    }
    for chunk in chunks {
        let mut entry = FragmentEntry::read_from_bytes(chunk).ok()?;
        image.blocks.adopt(&mut entry);
        let (start, stored) = (entry.start_block.get(), entry.size.get() & !BLOCK_STORED);
        let end = start.checked_add(u64::from(stored))?;
        let fits = start >= before && end <= superblock.inode_table;
        let fits = fits && (1..=superblock.block_size).contains(&stored);
        if !fits || entry.unused.get() != 0 {
            return None;
        }
        before = end;
        entries.push(entry);
    }
    Some(entries)
}

/// Assigns numbers to found blocks. `missing` holds the missing numbers in order, with their
/// lengths if known.
pub fn assign(missing: &[(u32, Option<u64>)], blocks: &[FoundBlock]) -> Vec<(u32, FoundBlock)> {
    let mut found = Vec::new();
    let (mut number, mut block) = (0, 0);
    let agrees = |number: usize, block: usize| {
        let len = missing.get(number).map(|&(_, len)| len)?;
        let block = blocks.get(block)?;
        Some(len.is_none_or(|len| len == block.decoded))
    };
    let is_run = |number: usize, block: usize| {
        let known = |at: usize| {
            missing
                .get(number + at)
                .is_some_and(|(_, len)| len.is_some())
        };
        (0..RUN).all(|at| known(at) && agrees(number + at, block + at) == Some(true))
    };
    let mut differences = 0;
    while let Some(same) = agrees(number, block) {
        if same {
            if let (Some(&(index, Some(_))), Some(&found_block)) =
                (missing.get(number), blocks.get(block))
            {
                found.push((index, found_block));
            }
            (number, block) = (number + 1, block + 1);
            continue;
        }
        if let Some(parts) = blocks
            .get(block)
            .and_then(|raw| split(missing, number, *raw))
        {
            (number, block) = (number + parts.len(), block + 1);
            found.extend(parts);
            continue;
        }
        differences += 1;
        let steps = (0..=REACH).flat_map(|sum| (0..=sum).map(move |first| (first, sum - first)));
        let mut steps = steps.filter(|_| differences <= DIFFERENCES);
        let Some(step) = steps.find(|step| is_run(number + step.0, block + step.1)) else {
            break;
        };
        (number, block) = (number + step.0, block + step.1);
    }
    found
}

/// Splits undecodable bytes into uncompressed fragment blocks, if the next lengths add up to them.
fn split(
    missing: &[(u32, Option<u64>)],
    number: usize,
    raw: FoundBlock,
) -> Option<Vec<(u32, FoundBlock)>> {
    let (mut parts, mut at) = (Vec::new(), raw.offset);
    for &(index, len) in missing.iter().skip(number).filter(|_| raw.is_raw) {
        let part = FoundBlock {
            offset: at,
            stored: len?,
            decoded: len?,
            is_raw: true,
        };
        at = part.end();
        parts.push((index, part));
        if at >= raw.end() {
            break;
        }
    }
    (at == raw.end()).then_some(parts)
}

/// Converts a found block to a fragment table entry.
pub fn entry(block: FoundBlock) -> Option<FragmentEntry> {
    let size = u32::try_from(block.stored).ok()?;
    let flag = if block.is_raw { BLOCK_STORED } else { 0 };
    Some(FragmentEntry {
        start_block: block.offset.into(),
        size: (size | flag).into(),
        unused: 0.into(),
    })
}
