//! The seam between storage and everything above it.

use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Names one of the byte stores an image is made of: 0 is the image itself, others are devices or
/// objects it refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobId(pub u32);

impl BlobId {
    /// The image itself.
    pub const IMAGE: Self = Self(0);
}

/// The access pattern of bytes that are read ahead, for a store with a cache below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// Nothing of what is around them.
    #[default]
    Scattered,
    /// The bytes behind them will be read next.
    Forward,
    /// They will not be wanted again soon: they need not go into the cache, but may be taken from there.
    Once,
}

/// Positional, exact reads; many threads at once. Short data is an error.
pub trait ReadAt: Send + Sync {
    /// Length in bytes. Fixed for the life of the source.
    fn len(&self) -> u64;

    /// Returns whether the source holds no byte at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] where the range reaches past [`len`](Self::len) or the store
    /// has fewer bytes than it said; otherwise what the store reports. After an error the contents
    /// of `out` are unspecified and must not be used.
    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Reads ahead like `read_exact_at`, in long requests, with the access pattern of the bytes.
    ///
    /// # Errors
    /// As [`read_exact_at`](Self::read_exact_at).
    fn read_ahead_at(&self, offset: u64, out: &mut [u8], pattern: Pattern) -> io::Result<()> {
        let _ = pattern;
        self.read_exact_at(offset, out)
    }

    /// Says that `range` will be read soon, so that a store with a cache below may begin. Returns at
    /// once and promises nothing; gives whether the store takes hints.
    fn will_need(&self, range: Range<u64>) -> bool {
        let _ = range;
        false
    }

    /// Says that `range` was read and is kept where it was wanted, so that a store need not keep it
    /// in a cache of its own. Advice: it can be read again.
    fn done_with(&self, range: Range<u64>) {
        let _ = range;
    }

    /// Returns whether a read may have to wait for a server now. A front end then answers what is here
    /// before it waits ([`wait::attempt`](crate::wait::attempt)); a source that says so must keep to
    /// the rules of [`wait`](crate::wait).
    fn is_slow(&self) -> bool {
        false
    }
}

impl<T: ReadAt + ?Sized> ReadAt for Arc<T> {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        (**self).read_exact_at(offset, out)
    }

    fn read_ahead_at(&self, offset: u64, out: &mut [u8], pattern: Pattern) -> io::Result<()> {
        (**self).read_ahead_at(offset, out, pattern)
    }

    fn will_need(&self, range: Range<u64>) -> bool {
        (**self).will_need(range)
    }

    fn done_with(&self, range: Range<u64>) {
        (**self).done_with(range);
    }

    fn is_slow(&self) -> bool {
        (**self).is_slow()
    }
}

/// Fails as [`ReadAt::read_exact_at`] must when `offset..offset + wanted` is not inside `len`.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] naming the range and the length.
pub fn past_end(offset: u64, wanted: usize, len: u64) -> io::Result<()> {
    match offset.checked_add(crate::u64_from(wanted)) {
        Some(end) if end <= len => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("read of {wanted} bytes at {offset} reaches past the end at {len}"),
        )),
    }
}
