//! Reads an index in pieces.

use forerun_io::{ReadAt, u64_from, usize_from};
use forerun_vfs::{Error, Result};

/// Length and alignment of a piece. All parts of an index are aligned to their own length, so none
/// crosses two pieces.
const PIECE: u64 = 2048;

/// A view of `start..end` of the metadata.
pub struct Bytes<'m> {
    meta: &'m dyn ReadAt,
    start: u64,
    end: u64,
    piece: [u8; 2048],
    /// Offset of the current piece, and its length: 0 before the first read.
    at: u64,
    len: u64,
}

impl<'m> Bytes<'m> {
    /// Creates a view of a range, which must be inside the metadata.
    pub const fn new(meta: &'m dyn ReadAt, start: u64, end: u64) -> Self {
        Self {
            meta,
            start,
            end,
            piece: [0; 2048],
            at: 0,
            len: 0,
        }
    }

    /// Reads the bytes at `offset`, which must be aligned to their length and inside the view.
    pub fn get<const N: usize>(&mut self, offset: u64) -> Result<[u8; N]> {
        let end = offset + u64_from(N);
        if offset < self.at || end > self.at + self.len {
            self.load(offset)?;
        }
        let from = usize_from(offset - self.at);
        let piece = self.piece.get(..usize_from(self.len));
        let found = piece.and_then(|piece| piece.get(from..)?.first_chunk());
        let missing = || Error::io(offset, N, std::io::ErrorKind::UnexpectedEof.into());
        found.copied().ok_or_else(missing)
    }

    fn load(&mut self, offset: u64) -> Result<()> {
        let aligned = offset - offset % PIECE;
        let start = aligned.max(self.start);
        let end = (aligned + PIECE).min(self.end);
        self.len = 0;
        let len = end - start;
        let out = &mut self.piece[..usize_from(len)];
        let read = self.meta.read_exact_at(start, out);
        read.map_err(|error| Error::io(start, usize_from(len), error))?;
        (self.at, self.len) = (start, len);
        Ok(())
    }
}
