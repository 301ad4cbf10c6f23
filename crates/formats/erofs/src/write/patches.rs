//! The bytes of an image that are known last.

use forerun_build::{BuildError, Complete};
use forerun_io::{u64_from, usize_from};

/// Bytes written at a time.
const CHUNK: usize = 1 << 20;
/// Most zeros between two patches that are written along.
const GAP: u64 = 4096;

/// An image that is complete except for bytes that will be replaced.
pub struct Patches<'o> {
    out: Complete<'o>,
    /// Offset of the pending bytes.
    start: u64,
    bytes: Vec<u8>,
}

impl<'o> Patches<'o> {
    pub const fn of(out: Complete<'o>) -> Self {
        Self {
            out,
            start: 0,
            bytes: Vec::new(),
        }
    }

    /// Replaces bytes. Bytes that follow the previous ones closely are written together with them:
    /// the space between is zeros.
    pub fn patch(&mut self, at: u64, bytes: &[u8]) -> Result<(), BuildError> {
        let end = self.start + u64_from(self.bytes.len());
        let goes_on = at >= end && at - end <= GAP && self.bytes.len() < CHUNK;
        if goes_on {
            let gap = usize_from(at - end);
            self.bytes.resize(self.bytes.len() + gap, 0);
        } else {
            self.flush()?;
            self.start = at;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes the pending bytes. Returns the length of the image.
    pub fn end(mut self) -> Result<u64, BuildError> {
        self.flush()?;
        self.out.end()
    }

    fn flush(&mut self) -> Result<(), BuildError> {
        if !self.bytes.is_empty() {
            self.out.patch(self.start, &self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}
