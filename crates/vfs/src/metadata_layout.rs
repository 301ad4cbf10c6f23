use std::ops::Range;

/// The location of an image's metadata, as far as the driver can tell without a walk. The engine
/// uses it to choose how to read metadata ahead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MetadataLayout {
    /// In these ranges, with little else, in the order in which a full walk reads them. Not empty.
    /// The engine reads the ranges in large steps.
    Ranges(Vec<Range<u64>>),
    /// Interleaved with file data, but [`inode_offset`](crate::Layout::inode_offset) finds the
    /// inodes of a listing without a read. The engine requests them together.
    Locatable,
    /// Anywhere. The engine reads each block when it is wanted, and guesses from earlier requests.
    #[default]
    Unknown,
}

impl MetadataLayout {
    /// Returns `Ranges`, or `Unknown` if there are none.
    #[must_use]
    pub fn of_ranges(ranges: Vec<Range<u64>>) -> Self {
        if ranges.is_empty() {
            Self::Unknown
        } else {
            Self::Ranges(ranges)
        }
    }

    /// Returns the ranges that hold metadata, if the driver knows them.
    #[must_use]
    pub fn ranges(&self) -> &[Range<u64>] {
        match self {
            Self::Ranges(ranges) => ranges,
            Self::Locatable | Self::Unknown => &[],
        }
    }
}
