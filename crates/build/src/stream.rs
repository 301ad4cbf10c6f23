//! Contents as writers take them: in order, and with the places of their holes.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

/// The bytes of contents from the start, in order.
pub trait ContentStream: Read + Send {
    /// Returns the number of the next bytes that are known to be zeros, without reading them: a hole. A stream that cannot
    /// tell returns 0.
    ///
    /// # Errors
    /// The errors of finding out.
    fn hole(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    /// Skips `len` bytes of the hole, at most as many as [`hole`](Self::hole) has returned.
    fn skip(&mut self, _len: u64) {}

    /// Returns the next range of data, without reading it: an empty one at the end where only a hole is left. A stream
    /// that cannot tell returns nothing.
    ///
    /// # Errors
    /// The errors of finding out.
    fn next_data(&mut self) -> io::Result<Option<Range<u64>>> {
        Ok(None)
    }

    /// Goes on at another place, where [`next_data`](Self::next_data) tells what follows.
    fn skip_to(&mut self, _at: u64) {}
}

impl ContentStream for File {}
impl ContentStream for io::Cursor<Arc<[u8]>> {}
