//! The compressed bytes, each read once, in order.

use std::ops::Range;

use forerun_io::{ReadAt, u64_from, usize_from};
use forerun_vfs::{Error, Result};

/// A source, or a part of one, that is read from its start to its end.
pub struct Input<'a> {
    source: &'a dyn ReadAt,
    /// Offset of the end of the part.
    limit: u64,
    /// Most bytes per read.
    chunk: usize,
    buffer: Vec<u8>,
    /// Number of buffered bytes that were consumed.
    used: usize,
    /// Offset after the last byte of the buffer.
    end: u64,
}

impl<'a> Input<'a> {
    pub const fn new(source: &'a dyn ReadAt, part: Range<u64>, chunk: usize) -> Self {
        Self {
            source,
            limit: part.end,
            chunk,
            buffer: Vec::new(),
            used: 0,
            end: part.start,
        }
    }

    /// Returns the offset at which the input ends: the length of the source, or the end of the
    /// part.
    pub const fn len(&self) -> u64 {
        self.limit
    }

    pub fn position(&self) -> u64 {
        self.end - u64_from(self.buffer.len() - self.used)
    }

    /// Returns the next bytes: at least one, or none at the end of the input.
    pub fn peek(&mut self) -> Result<&[u8]> {
        self.peek_at_least(1)
    }

    /// Returns the next bytes: at least `least`, which is small, or all remaining bytes.
    pub fn peek_at_least(&mut self, least: usize) -> Result<&[u8]> {
        while self.buffer.len() - self.used < least && self.end < self.len() {
            self.buffer.drain(..self.used);
            self.used = 0;
            let kept = self.buffer.len();
            let left = usize_from(self.len() - self.end);
            let len = self.chunk.max(least).min(left);
            self.buffer.resize(kept + len, 0);
            let read = self
                .source
                .read_exact_at(self.end, &mut self.buffer[kept..]);
            if let Err(error) = read {
                self.buffer.truncate(kept);
                return Err(Error::io(self.end, len, error));
            }
            self.end += u64_from(len);
        }
        Ok(&self.buffer[self.used..])
    }

    /// Moves past `len` of the returned bytes.
    pub fn consume(&mut self, len: usize) {
        self.used += len;
    }
}
