//! The seam to a store that can be changed.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::ReadAt;

/// A file or block device that can be written: positional, exact, from many threads at once.
///
/// A write is only durable once a later [`flush`](Self::flush) has returned. Between two flushes
/// the store may keep any part of the written data, in any order, torn at any sector: a caller that
/// needs an order flushes in between.
pub trait BlockDevice: ReadAt {
    /// Returns the smallest unit that is written whole or not at all, in bytes: a power of two, at
    /// least 512.
    fn sector_size(&self) -> u32 {
        512
    }

    /// Writes all of `data` at `offset`. Never grows the device.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the range reaches past [`len`](ReadAt::len); otherwise
    /// what the store reports. After an error any part of the range may have been written.
    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes `range` read as zeros without sending them, if the store can. Returns whether it did;
    /// if not, the caller has to write zeros.
    ///
    /// # Errors
    /// The errors of [`write_all_at`](Self::write_all_at).
    fn write_zeros(&self, range: Range<u64>) -> io::Result<bool> {
        let _ = range;
        Ok(false)
    }

    /// Returns once everything written before is durable.
    ///
    /// # Errors
    /// The errors of the store. The state of every write since the last flush is then unknown.
    fn flush(&self) -> io::Result<()>;

    /// Tells the store that the bytes of `range` are no longer needed. Later reads of them may
    /// return any bytes. Returns whether the store made use of the hint.
    ///
    /// # Errors
    /// The errors of the store, if it supports discarding at all.
    fn discard(&self, range: Range<u64>) -> io::Result<bool> {
        let _ = range;
        Ok(false)
    }
}

impl<T: BlockDevice + ?Sized> BlockDevice for Arc<T> {
    fn sector_size(&self) -> u32 {
        (**self).sector_size()
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        (**self).write_all_at(offset, data)
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<bool> {
        (**self).write_zeros(range)
    }

    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }

    fn discard(&self, range: Range<u64>) -> io::Result<bool> {
        (**self).discard(range)
    }
}
