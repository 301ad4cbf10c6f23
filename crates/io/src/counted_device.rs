//! A block device whose requests are counted.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::{BlobId, BlockDevice, Observer, Purpose, Structure, u64_from};

/// The counterpart of [`Counted`](crate::Counted) for a [`BlockDevice`]: reports reads, writes and
/// flushes to the observer, with the structure that their bytes belong to. It is not a device
/// itself, so that no request is counted twice.
#[derive(Clone)]
pub struct CountedDevice {
    inner: Arc<dyn BlockDevice>,
    observer: Arc<Observer>,
}

impl fmt::Debug for CountedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountedDevice")
            .field("len", &self.inner.len())
            .finish_non_exhaustive()
    }
}

impl CountedDevice {
    #[must_use]
    pub fn new(inner: Arc<dyn BlockDevice>, observer: Arc<Observer>) -> Self {
        Self { inner, observer }
    }

    #[must_use]
    pub const fn inner(&self) -> &Arc<dyn BlockDevice> {
        &self.inner
    }

    #[must_use]
    pub const fn observer(&self) -> &Arc<Observer> {
        &self.observer
    }

    #[must_use]
    pub fn len(&self) -> u64 {
        self.inner.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Reads as [`ReadAt::read_exact_at`](crate::ReadAt::read_exact_at) does, and counts the read.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn read(
        &self,
        offset: u64,
        out: &mut [u8],
        purpose: Purpose,
        structure: Structure,
    ) -> io::Result<()> {
        let timer = self.observer.timer();
        let result = self.inner.read_exact_at(offset, out);
        let place = (offset, u64_from(out.len()));
        let ok = result.is_ok();
        self.observer
            .read_of(timer, structure, BlobId::IMAGE, place, purpose, ok);
        result
    }

    /// Writes as [`BlockDevice::write_all_at`] does, and counts the write.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn write(&self, offset: u64, data: &[u8], structure: Structure) -> io::Result<()> {
        let timer = self.observer.timer();
        let result = self.inner.write_all_at(offset, data);
        let place = (offset, u64_from(data.len()));
        self.observer
            .write_of(timer, structure, place, result.is_ok());
        result
    }

    /// Zeros a range as [`BlockDevice::write_zeros`] does. Counted as a write, unless the device
    /// cannot zero ranges.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn write_zeros(&self, range: Range<u64>, structure: Structure) -> io::Result<bool> {
        let timer = self.observer.timer();
        let result = self.inner.write_zeros(range.clone());
        if !matches!(result, Ok(false)) {
            let place = (range.start, range.end - range.start);
            self.observer
                .write_of(timer, structure, place, result.is_ok());
        }
        result
    }

    /// Flushes as [`BlockDevice::flush`] does, and counts the flush.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn flush(&self) -> io::Result<()> {
        let timer = self.observer.timer();
        let result = self.inner.flush();
        self.observer.flush_ended(timer, result.is_ok());
        result
    }

    /// Passes on a hint as [`ReadAt::will_need`](crate::ReadAt::will_need) does, and counts its
    /// bytes if the device accepts it.
    pub fn will_need(&self, range: Range<u64>) {
        let len = range.end - range.start;
        if self.inner.will_need(range) {
            self.observer.hint(len);
        }
    }

    /// Discards as [`BlockDevice::discard`] does. Counted unless the device cannot discard.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn discard(&self, range: Range<u64>) -> io::Result<bool> {
        let timer = self.observer.timer();
        let result = self.inner.discard(range.clone());
        if !matches!(result, Ok(false)) {
            self.observer.discarded(timer, range, result.is_ok());
        }
        result
    }
}
