//! The two structures of romfs. All fields are big-endian.
//!
//! Names are those of the Linux kernel's description (`Documentation/filesystems/romfs.rst`).

use forerun_vfs::on_disk;
use zerocopy::byteorder::big_endian::U32;

pub const MAGIC: [u8; 8] = *b"-rom1fs-";
/// Headers, names and data start at multiples of this.
pub const ALIGN: u64 = 16;
/// Number of bytes at the start of the image that the superblock's checksum covers.
pub const CHECKSUMMED: u64 = 512;

on_disk! {
    /// Start of the image; the volume name follows.
    Superblock, 16 {
        magic: [u8; 8],
        /// Number of bytes that the filesystem uses.
        full_size: U32,
        /// Makes the big-endian words of the first 512 bytes add up to 0.
        checksum: U32,
    }
}

on_disk! {
    /// Start of every file; its name follows, then its data.
    FileHeader, 16 {
        /// Offset of the next header in the same directory, 0 for the last; the low four bits are
        /// [`TYPE_MASK`] and [`EXECUTABLE`].
        next: U32,
        spec_info: U32,
        size: U32,
        /// Makes the big-endian words of the header and the name add up to 0.
        checksum: U32,
    }
}

pub const SUPERBLOCK_LEN: u64 = 16;
pub const HEADER_LEN: u64 = 16;

/// Bits of `next` that hold an offset.
pub const OFFSET_MASK: u32 = !0xF;
/// Bits of `next` that hold the file type.
pub const TYPE_MASK: u32 = 0x7;
/// Bit of `next` that makes a file executable.
pub const EXECUTABLE: u32 = 0x8;

/// Sums the big-endian words of `bytes`, the last one padded with zeros.
pub fn checksum(bytes: &[u8]) -> u32 {
    bytes.chunks(4).fold(0, |sum: u32, chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        sum.wrapping_add(u32::from_be_bytes(word))
    })
}
