//! A source of which one part does not arrive, as from a server that has stopped answering.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};

use forerun_io::{ReadAt, Unpoisoned, u64_from, wait};

/// A source whose reads of one range wait until it is released. Clones share the stall.
#[derive(Clone, Debug)]
pub struct StalledSource<S> {
    inner: S,
    range: Range<u64>,
    obeys: bool,
    stall: Arc<Stall>,
}

#[derive(Debug, Default)]
struct Stall {
    released: Mutex<bool>,
    changed: Condvar,
}

impl<S: ReadAt> StalledSource<S> {
    /// Creates a source that reports to be slow, and obeys cancellation by [`wait`], like a remote
    /// image.
    pub fn server(inner: S, range: Range<u64>) -> Self {
        Self::new(inner, range, true)
    }

    /// Creates a source that ignores cancellation, like a disk that hangs.
    pub fn disk(inner: S, range: Range<u64>) -> Self {
        Self::new(inner, range, false)
    }

    fn new(inner: S, range: Range<u64>, obeys: bool) -> Self {
        Self {
            inner,
            range,
            obeys,
            stall: Arc::default(),
        }
    }

    pub fn release(&self) {
        *self.released() = true;
        self.stall.changed.notify_all();
    }

    fn released(&self) -> std::sync::MutexGuard<'_, bool> {
        let released = self.stall.released.lock();
        released.unpoisoned()
    }

    fn pass(&self) -> io::Result<()> {
        let mut released = self.released();
        while !*released {
            if self.obeys {
                wait::allowed()?;
            }
            let waited = self.stall.changed.wait_timeout(released, wait::SLICE);
            released = waited.unpoisoned().0;
        }
        Ok(())
    }
}

impl<S: ReadAt> ReadAt for StalledSource<S> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset.saturating_add(u64_from(out.len()));
        if offset < self.range.end && self.range.start < end {
            self.pass()?;
        }
        self.inner.read_exact_at(offset, out)
    }

    fn is_slow(&self) -> bool {
        self.obeys && !*self.released()
    }
}
