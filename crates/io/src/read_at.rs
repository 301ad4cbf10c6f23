//! The trait of sources.

use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Identifies one of the byte stores of an image: 0 is the image itself, others are devices or
/// objects that it refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobId(pub u32);

impl BlobId {
    pub const IMAGE: Self = Self(0);
}

/// The access pattern of readahead, for a store that has a cache below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// The bytes around the range are not read.
    #[default]
    Scattered,
    /// The bytes after the range will be read next.
    Forward,
    /// A long block that is wanted by itself. A read of the adjacent block does not make a
    /// sequential reader.
    Single,
    /// The bytes will not be read again soon. They need not enter the cache, but may be read from
    /// it.
    Once,
}

/// A source with positional, exact reads from many threads at once. Short data is an error.
pub trait ReadAt: Send + Sync {
    /// Returns the length in bytes, which never changes.
    fn len(&self) -> u64;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the range reaches past [`len`](Self::len) or the store
    /// is shorter than it said; otherwise the errors of the store. After an error the contents of
    /// `out` are unspecified and must not be used.
    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Reads as `read_exact_at` does, for readahead in long requests; `pattern` tells how the bytes
    /// are accessed.
    ///
    /// # Errors
    /// The errors of [`read_exact_at`](Self::read_exact_at).
    fn read_ahead_at(&self, offset: u64, out: &mut [u8], pattern: Pattern) -> io::Result<()> {
        let _ = pattern;
        self.read_exact_at(offset, out)
    }

    /// Hints that `range` will be read soon, so that a store with a cache below may prefetch it.
    /// Returns immediately, without a guarantee. Returns whether the store accepts hints.
    fn will_need(&self, range: Range<u64>) -> bool {
        let _ = range;
        false
    }

    /// Hints that the caller has cached `range`, so that a store need not cache it too. The range
    /// can still be read again.
    fn done_with(&self, range: Range<u64>) {
        let _ = range;
    }

    /// Tells the store that the bytes of `range` are wrong. A store that fetched them without
    /// verification fetches them again for the next read.
    fn distrust(&self, range: Range<u64>) {
        let _ = range;
    }

    /// Returns whether a read may have to wait for a server now. A front end then answers from
    /// local data before it waits ([`wait::attempt`](crate::wait::attempt)). A source that returns
    /// true must obey the rules of [`wait`](crate::wait).
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

    fn distrust(&self, range: Range<u64>) {
        (**self).distrust(range);
    }

    fn is_slow(&self) -> bool {
        (**self).is_slow()
    }
}

/// Returns an error unless `offset..offset + wanted` lies inside `len`, as
/// [`ReadAt::read_exact_at`] must.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`], with the range and the length.
pub fn past_end(offset: u64, wanted: usize, len: u64) -> io::Result<()> {
    match offset.checked_add(crate::u64_from(wanted)) {
        Some(end) if end <= len => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("read of {wanted} bytes at {offset} reaches past the end at {len}"),
        )),
    }
}
