//! The seam of searches: how the image of a format is found in a file of unknown contents.
//!
//! A probe looks at magic numbers only, which is enough at the place where an image must be. A
//! search finds the same bytes by chance, so a driver measures a candidate: it validates the
//! superblock, and says where the image ends.

use forerun_io::{ReadAt, usize_from};

use crate::{Error, Result};

/// A magic number of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Magic {
    /// Its offset from the start of the image.
    pub offset: u64,
    /// Its bytes, at least three.
    pub bytes: &'static [u8],
}

/// The facts in a valid superblock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Bytes of the image; `None` if the superblock does not say.
    pub len: Option<u64>,
    /// The volume's label, without padding.
    pub label: Vec<u8>,
}

/// Validates the superblock of an image at the start of `source`, with its checksums, and compares its sizes with
/// the source. Reads at most [`MEASURE_LEN`] bytes in all, however long the image says it is; of a compressed archive, the
/// first block of its stream.
pub type Measure = fn(source: &dyn ReadAt) -> Result<Measured>;

/// Most bytes that a [`Measure`] reads.
pub const MEASURE_LEN: usize = 72 << 10;

/// How a search finds archives: sequences of members in blocks, each with a magic number, without a superblock that says
/// where they end.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveSearch {
    /// The magic number of a member.
    pub member: Magic,
    /// Archives lie at multiples of this.
    pub step: u64,
    /// Starts a pass over the members of an archive.
    pub follow: fn() -> Box<dyn Follow>,
    /// The magic numbers of compressed archives. To validate one, the start of the stream is decoded.
    pub compressed: &'static [Magic],
}

/// A pass over an archive that only looks for its end.
pub trait Follow {
    /// Returns the offset in the archive and the number of the bytes to take next.
    fn wants(&self) -> (u64, usize);

    /// Takes these bytes, of an archive that has `len` bytes at most. Returns whether the archive
    /// ends after them.
    ///
    /// # Errors
    /// Any error of a driver: the bytes are not a member, and the archive ends before them.
    fn take(&mut self, bytes: &[u8], len: u64) -> Result<bool>;

    /// Returns the end of the members that are complete.
    fn end(&self) -> u64;
}

/// Reads the first `most` bytes of a source, or all if it has fewer.
///
/// # Errors
/// [`Error::Io`] if they cannot be read.
pub fn read_head(source: &dyn ReadAt, most: usize) -> Result<Vec<u8>> {
    let mut head = vec![0; most.min(usize_from(source.len()))];
    let read = source.read_exact_at(0, &mut head);
    read.map_err(|error| Error::io(0, head.len(), error))?;
    Ok(head)
}
