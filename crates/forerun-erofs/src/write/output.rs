//! The image as it grows.

use std::io::{BufWriter, Write};
use std::sync::Arc;

use forerun_engine::build::{BuildError, ImageOutput};
use forerun_io::{CountedWrite, Observer, saturating_usize, u64_from};

/// Bytes written at a time.
const CHUNK: usize = 1 << 20;
/// Zeros between two patches that are written along.
const GAP: u64 = 4096;

/// Counts, buffers, and says where a write failed.
pub struct Output<'o> {
    out: BufWriter<CountedWrite<&'o mut dyn ImageOutput>>,
    position: u64,
    observer: Arc<Observer>,
}

impl<'o> Output<'o> {
    pub fn new(out: &'o mut dyn ImageOutput, observer: &Arc<Observer>) -> Self {
        let counted = CountedWrite::new(out, Arc::clone(observer));
        Self {
            out: BufWriter::with_capacity(CHUNK, counted),
            position: 0,
            observer: Arc::clone(observer),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), BuildError> {
        let offset = self.position;
        self.out
            .write_all(bytes)
            .map_err(|source| BuildError::Output { offset, source })?;
        self.position = offset.saturating_add(u64_from(bytes.len()));
        Ok(())
    }

    /// Zeros up to `end`, which must not lie before the next byte.
    pub fn zeros_to(&mut self, end: u64) -> Result<(), BuildError> {
        let zeros = [0; 4096];
        while self.position < end {
            let len = saturating_usize(end - self.position).min(zeros.len());
            self.write(zeros.get(..len).unwrap_or_default())?;
        }
        Ok(())
    }

    /// Writes out what is buffered. Nothing more goes to the end.
    pub fn finish(self) -> Result<Patches<'o>, BuildError> {
        let position = self.position;
        let counted = self.out.into_inner().map_err(|error| BuildError::Output {
            offset: position,
            source: error.into_error(),
        })?;
        Ok(Patches {
            out: counted.into_inner(),
            len: position,
            observer: self.observer,
            start: 0,
            bytes: Vec::new(),
        })
    }
}

/// An image that is complete but for bytes that are replaced.
pub struct Patches<'o> {
    out: &'o mut dyn ImageOutput,
    len: u64,
    observer: Arc<Observer>,
    /// Where the bytes go that wait.
    start: u64,
    bytes: Vec<u8>,
}

impl Patches<'_> {
    /// Replaces bytes. What follows what was replaced before, or almost so, goes with it: the room
    /// between is of zeros.
    pub fn patch(&mut self, at: u64, bytes: &[u8]) -> Result<(), BuildError> {
        let end = self.start + u64_from(self.bytes.len());
        let goes_on = at >= end && at - end <= GAP && self.bytes.len() < CHUNK;
        if goes_on {
            let gap = saturating_usize(at - end);
            self.bytes.resize(self.bytes.len() + gap, 0);
        } else {
            self.flush()?;
            self.start = at;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// The length of the image.
    pub fn end(mut self) -> Result<u64, BuildError> {
        self.flush()?;
        let flushed = self.out.flush();
        flushed.map_err(|source| BuildError::Output {
            offset: self.len,
            source,
        })?;
        self.observer.flush();
        Ok(self.len)
    }

    fn flush(&mut self) -> Result<(), BuildError> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let offset = self.start;
        let patched = self.out.patch(offset, &self.bytes);
        patched.map_err(|source| BuildError::Output { offset, source })?;
        self.observer.write(offset, u64_from(self.bytes.len()));
        self.bytes.clear();
        Ok(())
    }
}
