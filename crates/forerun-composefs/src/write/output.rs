//! The image as it grows, and its digest.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use forerun_engine::build::{BuildError, ImageOutput};
use forerun_io::{CountedWrite, Observer, saturating_usize, u64_from};

use crate::digest::Digest;
use crate::verity::VerityHasher;

/// Bytes written at a time.
const CHUNK: usize = 1 << 20;

/// Counts, buffers, measures, and says where a write failed.
pub struct Output<'o> {
    out: BufWriter<CountedWrite<&'o mut dyn ImageOutput>>,
    hasher: VerityHasher,
    position: u64,
    observer: Arc<Observer>,
}

impl<'o> Output<'o> {
    pub fn new(out: &'o mut dyn ImageOutput, observer: &Arc<Observer>) -> Self {
        let counted = CountedWrite::new(out, Arc::clone(observer));
        Self {
            out: BufWriter::with_capacity(CHUNK, counted),
            hasher: VerityHasher::default(),
            position: 0,
            observer: Arc::clone(observer),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), BuildError> {
        let offset = self.position;
        self.out
            .write_all(bytes)
            .map_err(|source| BuildError::Output { offset, source })?;
        self.hasher.update(bytes);
        self.position = offset.saturating_add(u64_from(bytes.len()));
        Ok(())
    }

    /// Zeros up to `position`.
    pub fn pad_until(&mut self, position: u64) -> Result<(), BuildError> {
        let len = position.saturating_sub(self.position);
        self.write(&vec![0; saturating_usize(len)])
    }

    /// Writes out what is buffered; gives length and digest of the image.
    pub fn finish(mut self) -> Result<(u64, Digest), BuildError> {
        let offset = self.position;
        let failed = |source: io::Error| BuildError::Output { offset, source };
        self.out.flush().map_err(failed)?;
        self.observer.flush();
        Ok((self.position, self.hasher.finish()))
    }
}
