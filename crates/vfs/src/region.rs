//! The parts of an image that are not file contents.

use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Range of bytes in the image.
    pub range: Range<u64>,
    pub kind: RegionKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RegionKind {
    /// Metadata, with the format's name for it in lower-case letters.
    Metadata(&'static str),
    /// Free space for new files.
    Free,
}

impl Region {
    #[must_use]
    pub const fn metadata(name: &'static str, range: Range<u64>) -> Self {
        Self {
            range,
            kind: RegionKind::Metadata(name),
        }
    }
}
