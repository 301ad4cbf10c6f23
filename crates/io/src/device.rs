//! The trait of writable stores.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::ReadAt;

/// A writable file or block device, with positional and exact requests from many threads at once.
///
/// A write is only durable once a later [`flush`](Self::flush) has returned. Between two flushes
/// the store may keep any part of the written data, in any order, torn at any sector. A caller that
/// needs an order flushes in between.
pub trait BlockDevice: ReadAt {
    /// Returns the smallest unit that is written atomically, in bytes: a power of two, at least
    /// 512.
    fn sector_size(&self) -> u32 {
        512
    }

    /// Writes all of `data` at `offset`. Never grows the device.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the range reaches past [`len`](ReadAt::len); otherwise
    /// the errors of the store. After an error any part of the range may have been written.
    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes `range` read as zeros without transferring them, if the store can. Returns false if it
    /// cannot; the caller must then write zeros.
    ///
    /// # Errors
    /// The errors of [`write_all_at`](Self::write_all_at).
    fn write_zeros(&self, range: Range<u64>) -> io::Result<bool> {
        let _ = range;
        Ok(false)
    }

    /// Returns once all earlier writes are durable.
    ///
    /// # Errors
    /// The errors of the store. The state of every write since the last flush is then unknown.
    fn flush(&self) -> io::Result<()>;

    /// Tells the store that the bytes of `range` are no longer needed. Later reads of them may
    /// return any bytes. Returns whether the store used the hint.
    ///
    /// # Errors
    /// The errors of a store that supports discarding.
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
