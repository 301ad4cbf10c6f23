//! Numbers of the format and its two byte orders.
//!
//! Names are those of the Linux kernel's public header, `include/uapi/linux/cramfs_fs.h`.

use forerun_vfs::ByteOrder;

/// First word of the superblock.
pub const MAGIC: u32 = 0x28cd_3d45;
/// The first word in little-endian images.
pub const LITTLE: [u8; 4] = MAGIC.to_le_bytes();
/// The first word in big-endian images.
pub const BIG: [u8; 4] = MAGIC.to_be_bytes();
/// Text after the first four words of the superblock.
pub const SIGNATURE: [u8; 16] = *b"Compressed ROMFS";
/// Possible offsets of the superblock; the second leaves room for boot code.
pub const SUPERBLOCKS: [usize; 2] = [0, 512];
/// Offset of the root's inode in the superblock.
pub const ROOT: usize = 64;
/// Length of the superblock, including the root's inode.
pub const SUPERBLOCK_LEN: usize = 76;
/// Offset of the checksum in the superblock.
pub const CRC: usize = 32;
/// Length of an inode, without the name after it.
pub const INODE_LEN: usize = 12;
/// Unit of offsets, name lengths and device sizes, in bytes.
pub const UNIT: u64 = 4;
/// Longest name: a length of 6 bits, in units.
pub const NAME_MAX: u32 = 252;
/// Bytes of file data in a block. The image does not store it; Linux uses its page size.
pub const BLOCK: u64 = 4096;
/// Most bytes of a compressed block.
pub const STORED_MAX: u64 = 2 * BLOCK;
pub const POINTER_LEN: u64 = 4;

/// `fsid` and `size` are valid.
pub const FSID_VERSION_2: u32 = 0x001;
/// The entries of each directory are sorted by name.
pub const SORTED_DIRS: u32 = 0x002;
/// Blocks may be holes.
pub const HOLES: u32 = 0x100;
pub const WRONG_SIGNATURE: u32 = 0x200;
/// The entries of the root may begin anywhere.
pub const SHIFTED_ROOT_OFFSET: u32 = 0x400;
/// The two highest bits of block pointers are flags.
pub const EXT_BLOCK_POINTERS: u32 = 0x800;
pub const FLAGS: [(u32, &str); 6] = [
    (FSID_VERSION_2, "FSID_VERSION_2"),
    (SORTED_DIRS, "SORTED_DIRS"),
    (HOLES, "HOLES"),
    (WRONG_SIGNATURE, "WRONG_SIGNATURE"),
    (SHIFTED_ROOT_OFFSET, "SHIFTED_ROOT_OFFSET"),
    (EXT_BLOCK_POINTERS, "EXT_BLOCK_POINTERS"),
];
/// Flags that readers may ignore, even unknown ones.
pub const COMPATIBLE: u32 = 0xff;
/// The flags of images that can be read.
pub const KNOWN: u32 =
    COMPATIBLE | HOLES | WRONG_SIGNATURE | SHIFTED_ROOT_OFFSET | EXT_BLOCK_POINTERS;

pub const BLK_UNCOMPRESSED: u32 = 1 << 31;
/// The pointer holds the start of the block, in units, instead of its end.
pub const BLK_DIRECT_PTR: u32 = 1 << 30;

/// Splits a word into its first field, of `width` bits, and its second. Bit fields start at the
/// lowest bit of the word on little-endian machines and at the highest bit on big-endian ones.
pub const fn split(order: ByteOrder, word: u32, width: u32) -> (u32, u32) {
    match order {
        ByteOrder::Little => (word & ((1 << width) - 1), word >> width),
        ByteOrder::Big => (word >> (32 - width), word & ((1 << (32 - width)) - 1)),
    }
}

/// Returns the word at `at`, or 0 if it lies outside of `bytes`.
pub fn word(bytes: &[u8], at: usize, order: ByteOrder) -> u32 {
    order.u32_at(bytes, at).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_words() {
        // The words of the root in two images that mkfs.cramfs made of one tree.
        for (order, words) in [
            (ByteOrder::Little, ["ed410000", "e0000000", "c0040000"]),
            (ByteOrder::Big, ["41ed0000", "0000e000", "00000013"]),
        ] {
            let words = words.map(|hex| {
                let word = u32::from_str_radix(hex, 16).unwrap();
                order.u32(word.to_be_bytes())
            });
            let fields = [
                split(order, words[0], 16),
                split(order, words[1], 24),
                split(order, words[2], 6),
            ];
            assert_eq!(fields, [(0o40_755, 0), (224, 0), (0, 0x13)], "{order:?}");
        }
    }

    #[test]
    fn words_outside_are_zero() {
        assert_eq!(word(&[1, 2, 3, 4], 0, ByteOrder::Big), 0x0102_0304);
        assert_eq!(word(&[1, 2, 3, 4], 1, ByteOrder::Big), 0);
        assert_eq!(word(&[1, 2, 3, 4], usize::MAX, ByteOrder::Little), 0);
    }
}
