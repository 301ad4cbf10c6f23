//! A position in a table of metadata blocks.

use std::fmt;

use forerun_io::usize_from;

/// A metadata block, as the offset of its stored form in its table, and a byte offset in its
/// decoded form. On disk and as a `NodeId`, these take 48 bits and 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference(u64);

impl Reference {
    /// Creates a reference from its stored form. Bits above the 48th are kept; they are never
    /// inside a table.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Creates a reference from the two parts that inodes and directories store.
    pub fn new(block: u32, offset: u16) -> Self {
        Self(u64::from(block) << 16 | u64::from(offset))
    }

    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the offset of the block from the start of the table.
    pub const fn block(self) -> u64 {
        self.0 >> 16
    }

    /// Returns the offset in the decoded block.
    pub fn offset(self) -> usize {
        usize_from(self.0 & 0xffff)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}:{:#x}", self.block(), self.0 & 0xffff)
    }
}
