//! SquashFS 1.x to 3.x, in both byte orders, turned into the structures of 4.0.
//!
//! Everything behind these parsers is one code path: they read packed bit fields and return the
//! on-disk types of 4.0 with the values that 4.0 would have. `docs/formats/squashfs.md` has the
//! layouts.

mod entries;
mod inode;
mod lzma;

use forerun_vfs::Result;
use zerocopy::FromZeros;

use crate::cursor::Cursor;
use crate::ondisk::{DirEntry, DirHeader, DirIndex, FragmentEntry};
use crate::superblock::{Legacy, Version};

pub use inode::InodePlace;
pub use lzma::{candidates, with_headers};

impl Legacy {
    /// Returns the fragment table's entry in these bytes, of which 2.x uses the first 8.
    pub fn fragment(&self, bytes: &[u8]) -> FragmentEntry {
        entries::fragment(self, bytes)
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
}

/// Returns a structure of zeros to fill in.
fn zeroed<T: FromZeros>() -> T {
    T::new_zeroed()
}

/// The bit for a block that is stored as it is, and the longest length, in the sizes of 1.x.
const SHORT_STORED: u16 = 0x8000;
