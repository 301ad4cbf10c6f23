//! A place in a table of metadata blocks.

use std::fmt;

use forerun_io::usize_from;

/// A metadata block, by the distance of its stored form from the start of its table, and a byte in
/// its decoded form. On disk, and as a `NodeId`, 48 bits and 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference(u64);

impl Reference {
    /// Creates a reference from its form in the image. Bits above the 48th are kept, and are never
    /// inside a table.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Creates a reference from its parts, as inodes and directories store them.
    pub fn new(block: u32, offset: u16) -> Self {
        Self(u64::from(block) << 16 | u64::from(offset))
    }

    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the number of bytes from the start of the table to the block.
    pub const fn block(self) -> u64 {
        self.0 >> 16
    }

    /// Returns the number of bytes from the start of the decoded block.
    pub fn offset(self) -> usize {
        usize_from(self.0 & 0xffff)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}:{:#x}", self.block(), self.0 & 0xffff)
    }
}
