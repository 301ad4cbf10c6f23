//! Entries of listings and tables in 1.x to 3.x.

use super::{SHORT_STORED, zeroed};
use crate::bits::Bits;
use crate::ondisk::{BLOCK_STORED, DirEntry, DirHeader, DirIndex, FragmentEntry};
use crate::superblock::{Legacy, Version};

/// Parses a run header: 4 bytes, or 9 in 3.x.
pub fn dir_header(legacy: &Legacy, bytes: &[u8]) -> DirHeader {
    let mut bits = Bits::new(bytes, legacy.order);
    let mut header: DirHeader = zeroed();
    header.count = bits.u32(8).into();
    if legacy.version == Version::V3 {
        header.start_block = bits.u32(32).into();
        header.inode_number = bits.u32(32).into();
    } else {
        header.start_block = bits.u32(24).into();
    }
    header
}

/// Parses a directory entry: 3 bytes, or 5 in 3.x. Does not set the inode number.
pub fn dir_entry(legacy: &Legacy, bytes: &[u8]) -> DirEntry {
    let mut bits = Bits::new(bytes, legacy.order);
    let mut entry: DirEntry = zeroed();
    entry.offset = bits.u16(13).into();
    entry.kind = bits.u16(3).into();
    entry.size = bits.u16(8).into();
    entry
}

/// Parses a directory index: 8 bytes, or 9 in 3.x.
pub fn dir_index(legacy: &Legacy, bytes: &[u8]) -> DirIndex {
    let mut bits = Bits::new(bytes, legacy.order);
    let mut index: DirIndex = zeroed();
    let (at, block) = match legacy.version {
        Version::V1 | Version::V2 => (27, 29),
        Version::V3 => (32, 32),
    };
    index.index = bits.u32(at).into();
    index.start_block = bits.u32(block).into();
    index.size = bits.u32(8).into();
    index
}

/// Parses a fragment table entry: 8 bytes, or 16 in 3.x.
pub fn fragment(legacy: &Legacy, bytes: &[u8]) -> FragmentEntry {
    let mut bits = Bits::new(bytes, legacy.order);
    let mut entry: FragmentEntry = zeroed();
    let width = match legacy.version {
        Version::V1 | Version::V2 => 32,
        Version::V3 => 64,
    };
    entry.start_block = bits.u64(width).into();
    entry.size = bits.u32(32).into();
    entry
}

/// Converts the size of a 1.x data block to its 4.0 form. A length of 0 means 32768.
pub fn short_block_word(word: u16) -> u32 {
    let len = match word & !SHORT_STORED {
        0 => u32::from(SHORT_STORED),
        len => u32::from(len),
    };
    if word & SHORT_STORED == 0 {
        len
    } else {
        len | BLOCK_STORED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_of_1_x() {
        for (word, expected) in [
            (0x8000, 0x8000 | BLOCK_STORED),
            (0x8001, 1 | BLOCK_STORED),
            (1, 1),
            (0, 0x8000),
        ] {
            assert_eq!(short_block_word(word), expected);
        }
    }
}
