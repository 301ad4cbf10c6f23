//! On-disk structures of EROFS: little-endian, without padding.
//!
//! Field names are those of the format's documentation; their meaning is in
//! `docs/formats/erofs.md`. The structures of compressed files are in `zmap`.

use forerun_vfs::on_disk;
use zerocopy::little_endian::{U16, U32, U64};

/// Offset of the superblock for every block size.
pub const SUPERBLOCK_AT: u64 = 1024;
pub const MAGIC: u32 = 0xE0F5_E1E2;
/// Unit of nids in bytes.
pub const SLOT: u64 = 32;
/// Length of a device table entry, and the unit of the table's offset.
pub const DEVICE_SLOT: u64 = 128;
/// Length of an extension slot after the superblock.
pub const EXTENSION_SLOT: u64 = 16;
/// Flag of a nid: the inode is in the metabox.
pub const NID_METABOX: u64 = 1 << 63;

on_disk! {
    Superblock, 128 {
        magic: U32,
        checksum: U32,
        feature_compat: U32,
        blkszbits: u8,
        sb_extslots: u8,
        /// The root's nid. With 48-bit addresses and `rootnid_8b` set, the high part of `blocks`
        /// instead.
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
        /// Bits of [`crate::superblock::ALGORITHMS`], or the maximum match distance of LZ4.
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
        /// With 48-bit addresses: creation time of the image in seconds after `epoch`.
        build_time: U32,
        rootnid_8b: U64,
        reserved2: U64,
    }
}

/// Bits of [`Superblock::feature_compat`]: readers may ignore these features.
pub mod compat {
    pub const SB_CHKSUM: u32 = 0x01;
    /// Inodes have modification times, not change times.
    pub const MTIME: u32 = 0x02;
    /// Inodes have filters of their xattr names.
    pub const XATTR_FILTER: u32 = 0x04;
    pub const SHARED_EA_IN_METABOX: u32 = 0x08;
    /// The table of long xattr prefixes is in the image, not in a special inode.
    pub const PLAIN_XATTR_PFX: u32 = 0x10;
    /// Xattrs mark files that are equal in different images.
    pub const ISHARE_XATTRS: u32 = 0x20;
}

/// Bits of [`Superblock::feature_incompat`]: readers must know these features.
pub mod incompat {
    /// Compressed blocks start with zeros instead of ending with them.
    pub const ZERO_PADDING: u32 = 0x01;
    /// Compressor configurations follow the superblock, or physical clusters may have several
    /// blocks.
    pub const COMPR_CFGS: u32 = 0x02;
    pub const CHUNKED_FILE: u32 = 0x04;
    /// Extra devices, or files with two compressors.
    pub const DEVICE_TABLE: u32 = 0x08;
    /// Tails of compressed files may follow their inodes.
    pub const ZTAILPACKING: u32 = 0x10;
    /// Tails or whole files are in the packed inode, or extents use parts of compressed blocks.
    pub const FRAGMENTS: u32 = 0x20;
    pub const XATTR_PREFIXES: u32 = 0x40;
    pub const BITS_48: u32 = 0x80;
    pub const METABOX: u32 = 0x100;
    pub const KNOWN: u32 = 0x1ff;
}

on_disk! {
    InodeCompact, 32 {
        i_format: U16,
        i_xattr_icount: U16,
        i_mode: U16,
        /// Link count or high part of a block number; see [`format`](mod@format).
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
    InodeExtended, 64 {
        i_format: U16,
        i_xattr_icount: U16,
        i_mode: U16,
        /// With 48-bit addresses: high part of a block number.
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
    pub const EXTENDED: u16 = 1;
    /// Position of the layout bits.
    pub const LAYOUT_SHIFT: u32 = 1;
    /// Mask of the layout after the shift.
    pub const LAYOUT: u16 = 7;
    /// With 48-bit addresses: a directory without an entry for `.`; another file with one link,
    /// whose `i_nb` is part of a block number.
    pub const NLINK_1: u16 = 1 << 4;
    pub const KNOWN: u16 = 0x1f;
}

/// Bits of `i_u` of a chunk-based file.
pub mod chunk {
    /// log2 of the blocks in a chunk.
    pub const BITS: u32 = 0x1f;
    /// The table holds [`ChunkIndex`](super::ChunkIndex) entries.
    pub const INDEXES: u32 = 0x20;
    pub const BITS_48: u32 = 0x40;
    pub const KNOWN: u32 = 0x7f;
}

on_disk! {
    ChunkIndex, 8 {
        startblk_hi: U16,
        device_id: U16,
        startblk_lo: U32,
    }
}

on_disk! {
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
    /// A directory entry. The names are at the end of its block.
    Dirent, 12 {
        nid: U64,
        nameoff: U16,
        file_type: u8,
        reserved: u8,
    }
}

on_disk! {
    /// The header of an inode's xattrs. Shared xattr ids follow, then the inode's own xattrs.
    XattrHeader, 12 {
        h_name_filter: U32,
        h_shared_count: u8,
        h_reserved: [u8; 7],
    }
}

on_disk! {
    /// An xattr. Name and value follow, padded to a multiple of four.
    XattrEntry, 4 {
        e_name_len: u8,
        e_name_index: u8,
        e_value_size: U16,
    }
}

/// Flag of [`XattrEntry::e_name_index`]: the other bits are the index of a long prefix.
pub const XATTR_LONG_PREFIX: u8 = 0x80;
