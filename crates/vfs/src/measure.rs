//! How a search finds the images of a format in a file of unknown contents.
//!
//! A probe looks at magic numbers only, which is enough where an image is expected. A search also
//! finds these bytes by chance, so the driver then measures the candidate: it validates the
//! superblock, and returns where the image ends.

use forerun_io::{ReadAt, usize_from};

use crate::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Magic {
    /// Offset from the start of the image.
    pub offset: u64,
    /// At least three bytes.
    pub bytes: &'static [u8],
}

/// The facts that a valid superblock gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Length of the image in bytes, perhaps more than the source has; `None` if the superblock does
    /// not say.
    pub len: Option<u64>,
    /// The label of the volume, without padding.
    pub label: Vec<u8>,
    /// When the image was made, in seconds since 1970, if it says.
    pub created: Option<i64>,
    /// Its compressor, its version: text for people.
    pub details: String,
}

/// Validates the superblock of an image at the start of `source`, with its checksums. The source may
/// end before the image. Reads at most [`MEASURE_LEN`] bytes in all, whatever length the image
/// claims. For a compressed archive, these are the first block of its stream.
pub type Measure = fn(source: &dyn ReadAt) -> Result<Measured>;

pub const MEASURE_LEN: usize = 72 << 10;

/// How a search finds archives: sequences of members in blocks, each with a magic number, without a
/// superblock that says where the archive ends.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveSearch {
    pub member: Magic,
    /// Archives start at multiples of this offset.
    pub step: u64,
    pub follow: fn() -> Box<dyn Follow>,
    /// The magic numbers of compressed archives. To validate one, the start of the stream is
    /// decoded.
    pub compressed: &'static [Magic],
}

/// A pass over the members of an archive that looks for the end of the archive.
pub trait Follow {
    /// Returns the offset in the archive and the number of the bytes to take next.
    fn wants(&self) -> (u64, usize);

    /// Takes the requested bytes, of an archive that is at most `len` bytes long. Returns whether
    /// the archive ends after them.
    ///
    /// # Errors
    /// Any error of a driver. It means that the bytes are not a member, so the archive ends before
    /// them.
    fn take(&mut self, bytes: &[u8], len: u64) -> Result<bool>;

    /// Returns the end of the last complete member.
    fn end(&self) -> u64;
}

/// Reads the first `most` bytes of a source, or all of a shorter source.
///
/// # Errors
/// [`Error::Io`].
pub fn read_head(source: &dyn ReadAt, most: usize) -> Result<Vec<u8>> {
    let mut head = vec![0; most.min(usize_from(source.len()))];
    let read = source.read_exact_at(0, &mut head);
    read.map_err(|error| Error::io(0, head.len(), error))?;
    Ok(head)
}
