//! The image as it grows.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use forerun_engine::build::{BuildError, ImageOutput};
use forerun_io::{CountedWrite, Observer, saturating_usize, u64_from};

/// Bytes written at a time.
const CHUNK: usize = 1 << 20;

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

    /// Where the next byte goes.
    pub const fn position(&self) -> u64 {
        self.position
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), BuildError> {
        let offset = self.position;
        self.out
            .write_all(bytes)
            .map_err(|source| BuildError::Output { offset, source })?;
        self.position = offset.saturating_add(u64_from(bytes.len()));
        Ok(())
    }

    pub fn pad_to(&mut self, align: u64) -> Result<(), BuildError> {
        let end = self.position.next_multiple_of(align);
        self.write(&vec![0; saturating_usize(end - self.position)])
    }

    /// Writes out what is buffered, and replaces the first bytes.
    pub fn finish(self, head: &[u8]) -> Result<u64, BuildError> {
        let failed = |offset| move |source: io::Error| BuildError::Output { offset, source };
        let counted = self.out.into_inner();
        let counted = counted.map_err(|error| failed(self.position)(error.into_error()))?;
        let out = counted.into_inner();
        out.patch(0, head).map_err(failed(0))?;
        self.observer.write(0, u64_from(head.len()));
        out.flush().map_err(failed(self.position))?;
        self.observer.flush();
        Ok(self.position)
    }
}
