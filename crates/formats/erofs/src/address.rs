//! Metadata addresses. Metadata is in the image itself, or in the data of the metabox inode.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub space: Space,
    pub offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Image,
    /// An offset in the data of the metabox inode.
    Metabox,
}

impl Address {
    pub const fn plus(self, len: u64) -> Self {
        Self {
            space: self.space,
            offset: self.offset + len,
        }
    }
}
