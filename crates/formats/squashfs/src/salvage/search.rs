//! Searches for data blocks in parts of the image that no inode refers to.
//!
//! Data blocks have no headers: their sizes are in the inodes. But zlib, XZ and Zstandard streams
//! start with known bytes and mark their end, so consecutive blocks can be decoded. The search
//! takes time linear in the image length: failed attempts use up a budget, and its end stops the
//! search.

use std::ops::Range;

use forerun_codec::Codec;
use forerun_io::{ReadAt, u64_from, usize_from};

/// A block that was found, or the bytes between two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundBlock {
    pub offset: u64,
    /// Length in the image.
    pub stored: u64,
    pub decoded: u64,
    /// The bytes do not decode: one or more uncompressed blocks, or damage.
    pub is_raw: bool,
}

impl FoundBlock {
    pub const fn end(&self) -> u64 {
        self.offset + self.stored
    }
}

/// Bytes of a stream decoded as a first test; most wrong starts fail within them.
const PROBE: usize = 4096;
/// Bytes read at a time, on top of a block.
const STEP: u64 = 1 << 20;
/// Bytes that failed attempts may decode, for each byte of the image.
const EFFORT: u64 = 16;

pub struct Search<'s> {
    source: &'s dyn ReadAt,
    codec: Codec,
    block_size: u64,
    window: Vec<u8>,
    window_at: u64,
    out: Vec<u8>,
    budget: u64,
    most: usize,
    pub found: Vec<FoundBlock>,
    /// Whether the budget or `most` stopped the search.
    pub is_cut: bool,
}

impl<'s> Search<'s> {
    /// Creates a search for blocks of up to `block_size` decoded bytes.
    pub fn new(source: &'s dyn ReadAt, codec: Codec, block_size: u32, most: usize) -> Self {
        let block_size = u64::from(block_size);
        Self {
            source,
            codec,
            block_size,
            window: Vec::new(),
            window_at: 0,
            out: vec![0; usize_from(block_size)],
            budget: source.len().saturating_mul(EFFORT).saturating_add(STEP),
            most,
            found: Vec::new(),
            is_cut: false,
        }
    }

    /// Searches a part of the image that starts with a block. Stops without an error if the source
    /// cannot be read.
    pub fn part(&mut self, part: Range<u64>) {
        let (mut at, mut raw) = (part.start, part.start);
        while at < part.end {
            if self.budget == 0 || self.found.len() >= self.most {
                self.is_cut = true;
                return;
            }
            if let Some(block) = self.block_at(at, part.end) {
                self.raw(raw..at);
                self.found.push(block);
                at = block.end();
                raw = at;
            } else {
                at = self.next_start(at + 1, part.end);
            }
        }
        self.raw(raw..part.end);
    }

    fn raw(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            let len = range.end - range.start;
            self.found.push(FoundBlock {
                offset: range.start,
                stored: len,
                decoded: len,
                is_raw: true,
            });
        }
    }

    /// Decodes the block at `at`, which must end by `end`.
    fn block_at(&mut self, at: u64, end: u64) -> Option<FoundBlock> {
        let most = usize_from(self.block_size.min(end - at));
        self.fill(at, end)?;
        let start = usize_from(at - self.window_at);
        let input = self.window.get(start..)?;
        let input = input.get(..most.min(input.len()))?;
        let first = match self.codec {
            Codec::Zlib | Codec::Xz | Codec::Zstd => {
                if !self.codec.may_start(input) {
                    return None;
                }
                let probe = self.out.get_mut(..PROBE)?;
                match self.codec.decode_first(input, probe) {
                    Ok(first) => Some(first),
                    Err(forerun_codec::DecodeError::Long { .. }) => {
                        let first = self.codec.decode_first(input, &mut self.out);
                        if first.is_err() {
                            self.budget = self.budget.saturating_sub(self.block_size);
                        }
                        first.ok()
                    }
                    Err(_) => {
                        self.budget = self.budget.saturating_sub(u64_from(PROBE));
                        None
                    }
                }
            }
            // Other streams do not mark their end, so the whole part is tried as one block.
            _ if u64_from(input.len()) == end - at => {
                let decoded = self.codec.decode_up_to(input, &mut self.out).ok();
                let stored = input.len();
                decoded.map(|decoded| forerun_codec::First { stored, decoded })
            }
            _ => None,
        };
        let first = first.filter(|first| first.decoded > 0 && first.stored > 0)?;
        Some(FoundBlock {
            offset: at,
            stored: u64_from(first.stored),
            decoded: u64_from(first.decoded),
            is_raw: false,
        })
    }

    /// Returns the next offset from `at` on at which a block may start, or `end`.
    fn next_start(&mut self, mut at: u64, end: u64) -> u64 {
        if !matches!(self.codec, Codec::Zlib | Codec::Xz | Codec::Zstd) {
            return end;
        }
        while at < end && self.fill(at, end).is_some() {
            let start = usize_from(at - self.window_at);
            let bytes = &self.window[start..];
            let is_last = self.window_at + u64_from(self.window.len()) >= end;
            // A header cut by the end of the window is found in the next window.
            let keep = if is_last { 0 } else { 8 };
            let places = bytes.len().saturating_sub(keep);
            let starts = |&place: &usize| self.codec.may_start(&bytes[place..]);
            if let Some(place) = (0..places).find(starts) {
                return at + u64_from(place);
            }
            at += u64_from(places.max(1));
        }
        end
    }

    /// Fills the window with a block length from `at` on, or with all bytes up to `end`.
    fn fill(&mut self, at: u64, end: u64) -> Option<()> {
        let have = self.window_at + u64_from(self.window.len());
        let want = end.min(at + self.block_size);
        if at >= self.window_at && want <= have {
            return Some(());
        }
        let len = (end - at).min(self.block_size + STEP);
        self.window.clear();
        self.window.resize(usize_from(len), 0);
        self.window_at = at;
        if self.source.read_exact_at(at, &mut self.window).is_err() {
            self.window.clear();
            return None;
        }
        Some(())
    }
}
