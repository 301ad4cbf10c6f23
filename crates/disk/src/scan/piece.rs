//! The chunk of a file that a scan has in memory, and a candidate's view of it.

use std::io;

use forerun_io::{Counted, Pattern, Purpose, ReadAt, past_end, u64_from, usize_from};
use forerun_vfs::{Error, MEASURE_LEN, Result};

/// Bytes that are searched at once.
pub const PIECE: u64 = 4 << 20;

/// A chunk, with the bytes before it that are not identified yet, and the bytes after it that
/// validate a candidate at its end.
pub struct Piece<'s> {
    source: &'s dyn ReadAt,
    bytes: Vec<u8>,
    /// Offset of the first byte in memory.
    start: u64,
    /// Number of bytes in memory before the chunk.
    before: usize,
}

impl<'s> Piece<'s> {
    pub fn new(source: &'s dyn ReadAt) -> Self {
        Self {
            source,
            bytes: Vec::new(),
            start: 0,
            before: 0,
        }
    }

    /// Moves to the chunk at `start`, and keeps the bytes from `kept` on. Bytes in memory are not
    /// read again.
    pub fn load(&mut self, kept: u64, start: u64) -> Result<()> {
        let have = self.start + u64_from(self.bytes.len());
        let gone = match kept.checked_sub(self.start) {
            Some(gone) if kept < have => usize_from(gone),
            _ => self.bytes.len(),
        };
        self.bytes.drain(..gone);
        self.start = kept;
        self.before = usize_from(start - kept);
        let most = start - kept + PIECE + u64_from(MEASURE_LEN);
        let len = most.min(self.source.len() - kept);
        let held = self.bytes.len();
        self.bytes.resize(usize_from(len).max(held), 0);
        let (offset, rest) = (kept + u64_from(held), self.bytes.split_at_mut(held).1);
        if rest.is_empty() {
            return Ok(());
        }
        let read = self.source.read_ahead_at(offset, rest, Pattern::Once);
        read.map_err(|error| Error::io(offset, rest.len(), error))
    }

    /// Returns the bytes to search, and the bytes after them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.before..]
    }

    /// Returns the bytes in memory from `offset` of the file on.
    pub fn from(&self, offset: u64) -> &[u8] {
        let at = offset.checked_sub(self.start);
        let bytes = at.and_then(|at| self.bytes.get(usize_from(at)..));
        bytes.unwrap_or_default()
    }
}

/// The file from a candidate's start on. Reads inside the chunk need no request.
pub struct Candidate<'p, 's> {
    pub piece: &'p Piece<'s>,
    pub start: u64,
}

impl ReadAt for Candidate<'_, '_> {
    fn len(&self) -> u64 {
        self.piece.source.len() - self.start
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        past_end(offset, out.len(), self.len())?;
        let offset = self.start + offset;
        match self.piece.from(offset).get(..out.len()) {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            None => self.piece.source.read_exact_at(offset, out),
        }
    }
}

/// A source that counts requests, for code that takes any source.
pub struct CountedSource(pub Counted);

impl ReadAt for CountedSource {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out, Purpose::Metadata)
    }

    fn read_ahead_at(&self, offset: u64, out: &mut [u8], pattern: Pattern) -> io::Result<()> {
        self.0.read_ahead(offset, out, pattern)
    }
}
