//! The bytes of a candidate, read forward in growing steps and within a budget.

use forerun_io::{ReadAt, u64_from, usize_from};
use forerun_vfs::MEASURE_LEN;

/// Bytes of the first read. Most candidates fail on these.
const FIRST: usize = 512;
const MOST: usize = 256 << 10;

/// The remaining budget of a scan for checks that read bytes the scan reads again.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Bytes that checks may still read.
    pub reads: u64,
    /// Bytes that checks may still decode to.
    pub decodes: u64,
}

/// The source from the start of a candidate on.
pub struct Bytes<'s> {
    source: &'s dyn ReadAt,
    buffer: Vec<u8>,
    start: u64,
    step: usize,
    /// Number of bytes read so far.
    pub read: u64,
    /// Number of bytes decoded so far.
    pub decoded: u64,
    pub budget: Budget,
    /// The budget for reads did not suffice, so the check does not know all bytes.
    pub is_spent: bool,
}

impl<'s> Bytes<'s> {
    pub const fn new(source: &'s dyn ReadAt, budget: Budget) -> Self {
        Self {
            source,
            buffer: Vec::new(),
            start: 0,
            step: FIRST,
            read: 0,
            decoded: 0,
            budget,
            is_spent: false,
        }
    }

    /// Returns the number of bytes from the start of the candidate to the end of the source.
    pub fn left(&self) -> u64 {
        self.source.len()
    }

    /// Returns the bytes at `offset`. Returns `None` beyond the end of the source or the budget, or
    /// after a read error, which the scan itself will report.
    pub fn at(&mut self, offset: u64, len: usize) -> Option<&[u8]> {
        let bytes = self.up_to(offset, len);
        (bytes.len() == len).then_some(bytes)
    }

    /// Returns the bytes at `offset`, fewer at the end of the source.
    pub fn up_to(&mut self, offset: u64, len: usize) -> &[u8] {
        let len = len.min(usize_from(self.left().saturating_sub(offset)));
        let held = |this: &Self| {
            let from = usize_from(offset.checked_sub(this.start)?);
            let end = from.checked_add(len)?;
            (end <= this.buffer.len()).then_some(from..end)
        };
        if len == 0 {
            return &[];
        }
        if held(self).is_none() && !self.load(offset, len) {
            return &[];
        }
        held(self).map_or(&[], |range| &self.buffer[range])
    }

    fn load(&mut self, offset: u64, len: usize) -> bool {
        let end = self.start + u64_from(self.buffer.len());
        // Bytes in memory are not read again.
        let kept = if (self.start..end).contains(&offset) {
            usize_from(end - offset)
        } else {
            0
        };
        // A jump says nothing about the bytes after it.
        if !(self.start..=end + u64_from(self.step)).contains(&offset) {
            self.step = FIRST;
        }
        let len = self.step.max(len).min(usize_from(self.left() - offset));
        let read = self.read + u64_from(len - kept);
        if read > self.budget.reads.max(u64_from(MEASURE_LEN)) {
            self.is_spent = true;
            return false;
        }
        self.step = (self.step * 4).min(MOST);
        self.buffer.drain(..self.buffer.len() - kept);
        self.buffer.resize(len, 0);
        (self.start, self.read) = (offset, read);
        let rest = &mut self.buffer[kept..];
        let is_read = self
            .source
            .read_exact_at(offset + u64_from(kept), rest)
            .is_ok();
        if !is_read {
            self.buffer.clear();
        }
        is_read
    }

    pub fn array<const N: usize>(&mut self, offset: u64) -> Option<[u8; N]> {
        self.at(offset, N)?.first_chunk().copied()
    }

    /// Returns a little-endian number of `len` bytes, at most 8.
    pub fn le(&mut self, offset: u64, len: usize) -> Option<u64> {
        let bytes = self.at(offset, len)?;
        let digits = bytes.iter().rev();
        Some(digits.fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// Returns a big-endian number of `len` bytes, at most 8.
    pub fn be(&mut self, offset: u64, len: usize) -> Option<u64> {
        let bytes = self.at(offset, len)?;
        let digits = bytes.iter();
        Some(digits.fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    pub fn has(&mut self, offset: u64, expected: &[u8]) -> bool {
        self.at(offset, expected.len()) == Some(expected)
    }

    /// Returns the text at `offset`, without padding zeros and spaces.
    pub fn text(&mut self, offset: u64, len: usize) -> Vec<u8> {
        let bytes = self.up_to(offset, len);
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        text.trim_ascii_end().to_vec()
    }

    /// Returns the first offset at or after `from` with these bytes, within `most` bytes.
    pub fn find(&mut self, from: u64, wanted: &[u8], most: u64) -> Option<u64> {
        let first = *wanted.first()?;
        let mut at = from;
        while at - from < most {
            let left = usize_from(most - (at - from));
            let most_here = MOST.min(left).max(wanted.len());
            let end = self.start + u64_from(self.buffer.len());
            let held = match end.checked_sub(at) {
                Some(held) if at >= self.start => usize_from(held),
                _ => 0,
            };
            // Bytes in memory are searched first.
            let len = if held < wanted.len() {
                most_here
            } else {
                held.min(most_here)
            };
            let bytes = self.up_to(at, len);
            let mut rest = bytes;
            while let Some(place) = rest.iter().position(|&byte| byte == first) {
                rest = &rest[place..];
                if rest.starts_with(wanted) {
                    return Some(at + u64_from(bytes.len() - rest.len()));
                }
                rest = &rest[1..];
            }
            // A match may cross the border between two reads.
            let passed = (bytes.len() + 1).checked_sub(wanted.len())?;
            if passed == 0 {
                return None;
            }
            at += u64_from(passed);
        }
        None
    }
}
