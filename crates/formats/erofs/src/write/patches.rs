//! Replaces bytes of an image that become known last.

use forerun_build::{BuildError, Complete};
use forerun_io::{u64_from, usize_from};

const CHUNK: usize = 1 << 20;
/// Patches at most this far apart are merged into one write.
const GAP: u64 = 4096;

/// A finished image in which some bytes will be replaced.
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

    /// Replaces bytes. A patch close to the previous one is merged with it; the bytes between must
    /// be zeros in the image.
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
