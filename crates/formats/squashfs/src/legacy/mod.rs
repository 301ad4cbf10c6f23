//! SquashFS 1.x to 3.x in both byte orders, converted to the structures of 4.0.
//!
//! These parsers read packed bit fields and return the on-disk types of 4.0 with the values that
//! 4.0 would have, so the rest of the driver has one code path. `docs/formats/squashfs.md` has the
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
    /// Parses a fragment table entry; 2.x uses the first 8 bytes.
    pub fn fragment(&self, bytes: &[u8]) -> FragmentEntry {
        entries::fragment(self, bytes)
    }

    pub fn dir_header(&self, cursor: &mut Cursor<'_>) -> Result<DirHeader> {
        let mut bytes = [0; 9];
        let bytes = bytes.get_mut(..self.listing_lens().0).unwrap_or_default();
        cursor.read_into(bytes)?;
        Ok(entries::dir_header(self, bytes))
    }

    pub fn dir_entry(&self, cursor: &mut Cursor<'_>) -> Result<DirEntry> {
        let mut bytes = [0; 5];
        let bytes = bytes.get_mut(..self.listing_lens().1).unwrap_or_default();
        cursor.read_into(bytes)?;
        Ok(entries::dir_entry(self, bytes))
    }

    pub fn dir_index(&self, cursor: &mut Cursor<'_>) -> Result<DirIndex> {
        let mut bytes = [0; 9];
        let len = if self.version == Version::V3 { 9 } else { 8 };
        let bytes = bytes.get_mut(..len).unwrap_or_default();
        cursor.read_into(bytes)?;
        Ok(entries::dir_index(self, bytes))
    }

    /// Reads the size of a data block in its 4.0 form.
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

fn zeroed<T: FromZeros>() -> T {
    T::new_zeroed()
}

/// Flag in block sizes of 1.x: the block is uncompressed.
const SHORT_STORED: u16 = 0x8000;
