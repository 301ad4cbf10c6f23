//! The bytes of EROFS as they lie in the image: little-endian, without padding.
//!
//! Field names are those of the format's documentation; meaning and checks are elsewhere. See
//! `docs/formats/erofs.md`. The structures of compressed files are in `zmap`.

use forerun_vfs::on_disk;
use zerocopy::little_endian::{U16, U32, U64};

/// Offset of the superblock, whatever the block size.
pub const SUPERBLOCK_AT: u64 = 1024;
/// `0xE0F5E1E2`.
pub const MAGIC: u32 = 0xE0F5_E1E2;
/// Unit of node numbers, in bytes.
pub const SLOT: u64 = 32;
/// Bytes of a device's entry, and the unit of the table's offset.
pub const DEVICE_SLOT: u64 = 128;
/// Bytes that each extension slot adds to the superblock.
pub const EXTENSION_SLOT: u64 = 16;
/// Flag in a node number: the inode is in the metadata that the metabox inode holds.
pub const NID_METABOX: u64 = 1 << 63;

on_disk! {
    /// The superblock, at [`SUPERBLOCK_AT`]; extension slots follow.
    Superblock, 128 {
        magic: U32,
        checksum: U32,
        feature_compat: U32,
        blkszbits: u8,
        sb_extslots: u8,
        /// The root; with 48-bit addresses the high part of `blocks` if `rootnid_8b` is set.
        rootnid_2b: U16,
        inos: U64,
        epoch: U64,
        fixed_nsec: U32,
        blocks: U32,
        meta_blkaddr: U32,
        xattr_blkaddr: U32,
        uuid: [u8; 16],
        volume_name: [u8; 16],
        feature_incompat: U32,
        /// Bits of [`crate::superblock::ALGORITHMS`], or the farthest match of LZ4.
        is_compressed: U16,
        extra_devices: U16,
        devt_slotoff: U16,
        dirblkbits: u8,
        xattr_prefix_count: u8,
        xattr_prefix_start: U32,
        packed_nid: U64,
        xattr_filter_reserved: u8,
        ishare_xattr_prefix_id: u8,
        reserved: [u8; 2],
        /// With 48-bit addresses: seconds after `epoch` at which the image was made.
        build_time: U32,
        rootnid_8b: U64,
        reserved2: U64,
    }
}

/// Bits of [`Superblock::feature_compat`]: an image can be read without knowing them.
pub mod compat {
    /// There is a checksum.
    pub const SB_CHKSUM: u32 = 0x01;
    /// Inodes have modification times.
    pub const MTIME: u32 = 0x02;
    /// Inodes have filters of xattr names.
    pub const XATTR_FILTER: u32 = 0x04;
    /// Shared xattrs are in the metabox.
    pub const SHARED_EA_IN_METABOX: u32 = 0x08;
    /// Long xattr prefixes are outside of all inodes.
    pub const PLAIN_XATTR_PFX: u32 = 0x10;
    /// Xattrs tell which files of different images are the same.
    pub const ISHARE_XATTRS: u32 = 0x20;
}

/// Bits of [`Superblock::feature_incompat`]: an image cannot be read without knowing them.
pub mod incompat {
    /// Compressed blocks are filled with zeros at their start.
    pub const ZERO_PADDING: u32 = 0x01;
    /// Settings of the compressors follow the superblock, or blocks of more than one unit occur.
    pub const COMPR_CFGS: u32 = 0x02;
    /// There are files in chunks.
    pub const CHUNKED_FILE: u32 = 0x04;
    /// There are other devices, or files with two compressors.
    pub const DEVICE_TABLE: u32 = 0x08;
    /// The ends of compressed files are next to inodes.
    pub const ZTAILPACKING: u32 = 0x10;
    /// The ends of compressed files, or all of them, are in the packed inode; or parts of
    /// compressed blocks are used.
    pub const FRAGMENTS: u32 = 0x20;
    /// There are long xattr prefixes.
    pub const XATTR_PREFIXES: u32 = 0x40;
    /// Block numbers have 48 bits.
    pub const BITS_48: u32 = 0x80;
    /// Inodes may be in the metabox inode.
    pub const METABOX: u32 = 0x100;
    /// All features that this crate supports.
    pub const KNOWN: u32 = 0x1ff;
}

on_disk! {
    /// An inode, short form.
    InodeCompact, 32 {
        i_format: U16,
        i_xattr_icount: U16,
        i_mode: U16,
        /// Links; or the high part of a block number, see [`format`](mod@format).
        i_nb: U16,
        i_size: U32,
        /// With 48-bit addresses: seconds after the superblock's `epoch`.
        i_mtime: U32,
        i_u: U32,
        i_ino: U32,
        i_uid: U16,
        i_gid: U16,
        i_reserved: U32,
    }
}

on_disk! {
    /// An inode, long form.
    InodeExtended, 64 {
        i_format: U16,
        i_xattr_icount: U16,
        i_mode: U16,
        /// With 48-bit addresses: the high part of a block number.
        i_nb: U16,
        i_size: U64,
        i_u: U32,
        i_ino: U32,
        i_uid: U32,
        i_gid: U32,
        i_mtime: U64,
        i_mtime_nsec: U32,
        i_nlink: U32,
        i_reserved2: [u8; 16],
    }
}

/// Bits of `i_format`.
pub mod format {
    /// It is the long form.
    pub const EXTENDED: u16 = 1;
    /// Bits before the layout.
    pub const LAYOUT_SHIFT: u32 = 1;
    /// The layout, after that shift.
    pub const LAYOUT: u16 = 7;
    /// With 48-bit addresses: a directory without an entry for itself; a node of any other kind has
    /// one link, and its `i_nb` is part of a block number.
    pub const NLINK_1: u16 = 1 << 4;
    /// All bits with a meaning.
    pub const KNOWN: u16 = 0x1f;
}

/// Bits of `i_u` of a file in chunks.
pub mod chunk {
    /// log2 of the number of blocks in a chunk.
    pub const BITS: u32 = 0x1f;
    /// Entries are [`ChunkIndex`](super::ChunkIndex)es.
    pub const INDEXES: u32 = 0x20;
    /// Block numbers have 48 bits.
    pub const BITS_48: u32 = 0x40;
    /// All bits with a meaning.
    pub const KNOWN: u32 = 0x7f;
}

on_disk! {
    /// The place of a chunk.
    ChunkIndex, 8 {
        startblk_hi: U16,
        device_id: U16,
        startblk_lo: U32,
    }
}

on_disk! {
    /// A device besides the image.
    DeviceSlot, 128 {
        tag: [u8; 64],
        blocks_lo: U32,
        uniaddr_lo: U32,
        blocks_hi: U16,
        uniaddr_hi: U16,
        reserved: [u8; 52],
    }
}

on_disk! {
    /// A directory entry; names are at the end of its block.
    Dirent, 12 {
        nid: U64,
        nameoff: U16,
        file_type: u8,
        reserved: u8,
    }
}

on_disk! {
    /// The start of an inode's xattrs; numbers of shared ones follow, then its own.
    XattrHeader, 12 {
        h_name_filter: U32,
        h_shared_count: u8,
        h_reserved: [u8; 7],
    }
}

on_disk! {
    /// An xattr; name and value follow, padded to a multiple of four.
    XattrEntry, 4 {
        e_name_len: u8,
        e_name_index: u8,
        e_value_size: U16,
    }
}

/// Flag in [`XattrEntry::e_name_index`]: the rest is the number of a long prefix.
pub const XATTR_LONG_PREFIX: u8 = 0x80;
