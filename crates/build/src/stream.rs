//! Contents as writers read them: sequentially, with the positions of their holes.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

/// The bytes of contents, read sequentially from the start.
pub trait ContentStream: Read + Send {
    /// Returns the number of zero bytes at the current position that need not be read, because they
    /// are a hole. A stream without this knowledge returns 0.
    fn hole(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    /// Skips `len` bytes of a hole, at most the number that [`hole`](Self::hole) has returned.
    fn skip(&mut self, _len: u64) {}

    /// Returns the next data range without reading it; an empty range at the end if only a hole is
    /// left. A stream without this knowledge returns `None`.
    fn next_data(&mut self) -> io::Result<Option<Range<u64>>> {
        Ok(None)
    }

    /// Continues at an offset that [`next_data`](Self::next_data) has returned.
    fn skip_to(&mut self, _at: u64) {}
}

impl ContentStream for File {}
impl ContentStream for io::Cursor<Arc<[u8]>> {}
