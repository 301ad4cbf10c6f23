use std::io::{self, Write};
use std::sync::Arc;

use crate::{Observer, u64_from};

#[derive(Debug)]
pub struct CountedWrite<W> {
    inner: W,
    position: u64,
    observer: Arc<Observer>,
}

impl<W: Write> CountedWrite<W> {
    pub const fn new(inner: W, observer: Arc<Observer>) -> Self {
        Self {
            inner,
            position: 0,
            observer,
        }
    }

    /// Returns the number of bytes written so far, including [advanced](Self::advance) ones.
    pub const fn position(&self) -> u64 {
        self.position
    }

    pub fn into_inner(self) -> W {
        self.inner
    }

    /// Returns the output for transfers other than writes, which are not counted.
    pub const fn get_mut(&mut self) -> &mut W {
        &mut self.inner
    }

    /// Advances the position by `len` bytes that reached the output by another transfer.
    pub const fn advance(&mut self, len: u64) {
        self.position += len;
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
