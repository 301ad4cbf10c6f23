//! Places in the metadata, which is in the image as it is, or in the data of the metabox inode.

/// An offset of metadata, and the space it counts in: the image or the metabox inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub space: Space,
    pub offset: u64,
}

/// The space that holds a piece of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Image,
    /// In the data of the metabox inode.
    Metabox,
}

impl Address {
    /// Returns the place `len` bytes further on.
    pub const fn plus(self, len: u64) -> Self {
        Self {
            space: self.space,
            offset: self.offset + len,
        }
    }
}
