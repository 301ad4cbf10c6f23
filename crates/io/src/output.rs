//! The last boundary: bytes written to an output.

use std::io::{self, Write};
use std::sync::Arc;

use crate::{Observer, u64_from};

/// Counts the writes and flushes of `inner`.
#[derive(Debug)]
pub struct CountedWrite<W> {
    inner: W,
    position: u64,
    observer: Arc<Observer>,
}

impl<W: Write> CountedWrite<W> {
    /// Counts from position 0.
    pub const fn new(inner: W, observer: Arc<Observer>) -> Self {
        Self {
            inner,
            position: 0,
            observer,
        }
    }

    /// Bytes written so far.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// The output itself.
    pub fn into_inner(self) -> W {
        self.inner
    }

    /// The output, to be moved on by other means than writing; nothing of that is counted.
    pub const fn get_mut(&mut self) -> &mut W {
        &mut self.inner
    }

    /// The output was moved on by `len` bytes.
    pub const fn advance(&mut self, len: u64) {
        self.position = self.position.saturating_add(len);
    }
}

impl<W: Write> Write for CountedWrite<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.observer.write(self.position, u64_from(written));
        self.position += u64_from(written);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()?;
        self.observer.flush();
        Ok(())
    }
}
