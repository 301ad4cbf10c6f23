//! The parts of an image that are not contents of files.

use std::ops::Range;

/// A part of an image, as its driver knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Bytes of the image.
    pub range: Range<u64>,
    /// The contents.
    pub kind: RegionKind,
}

/// The contents of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RegionKind {
    /// Metadata: the name that the format has for it, in lower-case letters.
    Metadata(&'static str),
    /// Free space for new files.
    Free,
}

impl Region {
    /// Creates a region of metadata.
    #[must_use]
    pub const fn metadata(name: &'static str, range: Range<u64>) -> Self {
        Self {
            range,
            kind: RegionKind::Metadata(name),
        }
    }
}
