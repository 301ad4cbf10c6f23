//! SquashFS 1.x to 3.x, in both byte orders, turned into the structures of 4.0.
//!
//! Everything behind these parsers is one code path: they read packed bit fields and return the
//! on-disk types of 4.0 with the values that 4.0 would have. `docs/formats/squashfs.md` has the
//! layouts.

mod bits;
mod entries;
mod inode;
mod lzma;
mod superblock;

use forerun_vfs::{ByteOrder, Result};
use zerocopy::FromZeros;

use crate::cursor::Cursor;
use crate::ondisk::{DirEntry, DirHeader, DirIndex, FragmentEntry};
use crate::tables::Pointers;

pub use bits::Bits;
pub use inode::InodePlace;
pub use lzma::candidates;

/// The major version of an old image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    V1,
    V2,
    V3,
}

impl Version {
    /// Returns the number in the superblock.
    pub const fn major(self) -> u16 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }
}

/// The facts of an old image that an image of 4.0 does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Legacy {
    pub version: Version,
    pub minor: u16,
    pub order: ByteOrder,
    /// The first four bytes, which vendors change.
    pub magic: [u8; 4],
    /// A byte 0xff follows the header of each metadata block.
    pub has_marker: bool,
    /// Start and number of the user numbers.
    pub uids: (u64, u16),
    /// Start and number of the group numbers.
    pub gids: (u64, u16),
    /// Where the superblock ends.
    pub head: u64,
}

impl Legacy {
    /// Recognises an old image by its magic and version. Vendors' magics say nothing reliable of the
    /// byte order; the version does.
    pub fn recognise(head: &[u8]) -> Option<(Version, ByteOrder)> {
        superblock::recognise(head)
    }

    /// Returns the version as text.
    pub fn version_text(&self) -> String {
        format!("{}.{}", self.version.major(), self.minor)
    }

    /// Returns whether names in listings are known to be in order.
    pub fn is_sorted(&self) -> bool {
        self.version == Version::V3
    }

    /// Returns whether inodes have numbers and counts of links.
    pub fn has_numbers(&self) -> bool {
        self.version == Version::V3
    }

    /// Returns the form of the pointers of its tables.
    pub fn pointers(&self) -> Pointers {
        Pointers {
            len: if self.version == Version::V3 { 8 } else { 4 },
            order: self.order,
        }
    }

    /// Returns the number of bytes of an entry of the fragment table.
    pub fn fragment_len(&self) -> u64 {
        if self.version == Version::V3 { 16 } else { 8 }
    }

    /// Returns the fragment table's entry in these bytes, of which 2.x uses the first 8.
    pub fn fragment(&self, bytes: &[u8]) -> FragmentEntry {
        entries::fragment(self, bytes)
    }

    /// Returns the number of bytes of a header in a listing, and of an entry.
    pub const fn listing_lens(&self) -> (usize, usize) {
        match self.version {
            Version::V1 | Version::V2 => (4, 3),
            Version::V3 => (9, 5),
        }
    }

    /// Reads the header of a run of entries.
    pub fn dir_header(&self, cursor: &mut Cursor<'_>) -> Result<DirHeader> {
        let mut bytes = [0; 9];
        let bytes = bytes.get_mut(..self.listing_lens().0).unwrap_or_default();
        cursor.read_into(bytes)?;
        Ok(entries::dir_header(self, bytes))
    }

    /// Reads an entry of a listing, up to its name.
    pub fn dir_entry(&self, cursor: &mut Cursor<'_>) -> Result<DirEntry> {
        let mut bytes = [0; 5];
        let bytes = bytes.get_mut(..self.listing_lens().1).unwrap_or_default();
        cursor.read_into(bytes)?;
        Ok(entries::dir_entry(self, bytes))
    }

    /// Reads a directory index, up to its name.
    pub fn dir_index(&self, cursor: &mut Cursor<'_>) -> Result<DirIndex> {
        let mut bytes = [0; 9];
        let len = if self.version == Version::V3 { 9 } else { 8 };
        let bytes = bytes.get_mut(..len).unwrap_or_default();
        cursor.read_into(bytes)?;
        Ok(entries::dir_index(self, bytes))
    }

    /// Reads the size of a data block, as 4.0 stores it.
    pub fn block_word(&self, cursor: &mut Cursor<'_>) -> Result<u32> {
        if self.version != Version::V1 {
            let mut word = [0; 4];
            cursor.read_into(&mut word)?;
            return Ok(self.order.u32(word));
        }
        let mut word = [0; 2];
        cursor.read_into(&mut word)?;
        Ok(entries::short_block_word(self.order.u16(word)))
    }

    /// Returns the bytes of the size of a data block.
    pub fn block_word_len(&self) -> u64 {
        if self.version == Version::V1 { 2 } else { 4 }
    }
}

/// Returns a structure of zeros to fill in.
fn zeroed<T: FromZeros>() -> T {
    T::new_zeroed()
}

/// The bit for a block that is stored as it is, and the longest length, in the sizes of 1.x.
const SHORT_STORED: u16 = 0x8000;
