//! The magic numbers of a scan, searched for together and at every byte.

use forerun_io::{u64_from, usize_from};
use forerun_vfs::{ArchiveSearch, Format};

use crate::known::{KNOWN, Known};

const PAIRS: usize = 1 << 16;

/// The meaning of a magic number.
#[derive(Clone, Copy, Debug)]
pub enum Meaning {
    Image(&'static Format),
    /// The first member of an archive.
    Archive(&'static Format, &'static ArchiveSearch),
    Compressed(&'static Format),
    Disk,
    Known(&'static Known),
}

/// A magic number, `offset` bytes after the start of its structure.
#[derive(Clone, Copy, Debug)]
pub struct Sign {
    pub offset: u64,
    pub meaning: Meaning,
    bytes: &'static [u8],
    /// Alignment of the image, archive or header.
    step: u64,
}

pub struct Signs {
    all: Vec<Sign>,
    /// Magic numbers that count only at multiples of a step.
    blocks: Vec<Sign>,
    /// For each pair of bytes, whether a magic number starts with it.
    pairs: Vec<bool>,
}

impl Signs {
    /// Collects the magic numbers of the formats.
    pub fn new(formats: &'static [Format]) -> Self {
        let images = formats.iter().flat_map(|format| {
            let magics = format.magics.iter();
            magics.map(|magic| (magic.offset, magic.bytes, Meaning::Image(format)))
        });
        let archives = formats
            .iter()
            .filter_map(|format| Some((format, format.archive?)));
        let compressed = archives.clone().flat_map(|(format, archive)| {
            let magics = archive.compressed.iter();
            magics.map(|magic| (magic.offset, magic.bytes, Meaning::Compressed(format)))
        });
        let blocks = archives.map(|(format, archive)| Sign {
            offset: archive.member.offset,
            meaning: Meaning::Archive(format, archive),
            bytes: archive.member.bytes,
            step: archive.step.max(1),
        });
        let disks: [(u64, &[u8], Meaning); 2] = [
            (0, &[0x3a, 0xff, 0x26, 0xed], Meaning::Disk),
            (0, b"UBI#", Meaning::Disk),
        ];
        let known = KNOWN.iter();
        let known = known.map(|it| (it.magic.offset, it.magic.bytes, Meaning::Known(it)));
        let all: Vec<_> = images
            .chain(disks)
            .chain(compressed)
            .chain(known)
            .map(|(offset, bytes, meaning)| Sign {
                offset,
                meaning,
                bytes,
                step: 1,
            })
            .collect();
        let mut pairs = vec![false; PAIRS];
        for sign in &all {
            if let Some(is_first) = pair(sign.bytes).and_then(|pair| pairs.get_mut(pair)) {
                *is_first = true;
            }
        }
        Self {
            all,
            blocks: blocks.collect(),
            pairs,
        }
    }

    /// Returns the first position at or after `from` where a magic number may be.
    pub fn next(&self, bytes: &[u8], from: usize) -> Option<usize> {
        let mut windows = bytes.get(from..)?.windows(2);
        let is_first = |window| pair(window).and_then(|pair| self.pairs.get(pair)) == Some(&true);
        windows.position(is_first).map(|at| from + at)
    }

    /// Returns the first position at or after `from` of a magic number at a multiple of its step.
    /// `start` is the offset of the bytes in the file.
    pub fn next_block(&self, bytes: &[u8], from: usize, start: u64) -> Option<usize> {
        let firsts = self.blocks.iter().filter_map(|sign| {
            let step = usize_from(sign.step);
            let least = (start + u64_from(from)).max(sign.offset);
            let whole = (least - sign.offset).checked_next_multiple_of(sign.step)?;
            let first = usize_from(whole.checked_add(sign.offset)?.checked_sub(start)?);
            let mut places = (first..bytes.len()).step_by(step);
            places.find(|&at| bytes.get(at..).is_some_and(|b| b.starts_with(sign.bytes)))
        });
        firsts.min()
    }

    /// Returns the magic numbers that `bytes`, at `position` of the file, start with.
    pub fn at(&self, bytes: &[u8], position: u64) -> impl Iterator<Item = Sign> {
        let all = self.all.iter().chain(&self.blocks);
        let found = all.filter(move |sign| {
            let offset = position.checked_sub(sign.offset);
            bytes.starts_with(sign.bytes) && offset.is_some_and(|at| at.is_multiple_of(sign.step))
        });
        found.copied()
    }
}

fn pair(bytes: &[u8]) -> Option<usize> {
    let pair = bytes.first_chunk()?;
    Some(u16::from_le_bytes(*pair).into())
}
