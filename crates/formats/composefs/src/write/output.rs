//! The output of an image, with its digest.

use std::sync::Arc;

use forerun_build::{BuildError, ImageOutput, ImageWriter};
use forerun_io::Observer;

use crate::digest::Algorithm;
use crate::digest::Digest;
use crate::verity::VerityHasher;

/// Zeros for one write.
const ZEROS: [u8; 4096] = [0; 4096];

/// Writes bytes, and computes their digest.
pub struct Output<'o> {
    out: ImageWriter<'o>,
    hasher: VerityHasher,
}

impl<'o> Output<'o> {
    pub fn new(
        out: &'o mut dyn ImageOutput,
        observer: &Arc<Observer>,
        algorithm: Algorithm,
    ) -> Self {
        Self {
            out: ImageWriter::new(out, observer),
            hasher: VerityHasher::new(algorithm),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), BuildError> {
        self.out.write(bytes)?;
        self.hasher.update(bytes);
        Ok(())
    }

    pub fn zeros_to(&mut self, position: u64) -> Result<(), BuildError> {
        while self.out.position() < position {
            let left = forerun_io::usize_from(position - self.out.position());
            self.write(&ZEROS[..left.min(ZEROS.len())])?;
        }
        Ok(())
    }

    /// Writes the buffered bytes. Returns length and digest of the image.
    pub fn finish(self) -> Result<(u64, Digest), BuildError> {
        let len = self.out.finish()?.end()?;
        Ok((len, self.hasher.finish()))
    }
}
