//! On-disk structures of SquashFS 4.0: little-endian, without padding.
//!
//! One vendor's images have the same structures with big-endian numbers. Readers swap these at once
//! ([`Numbers`]), so the rest of the driver sees one byte order.
//!
//! Field names are those of the format's description; their meaning is in
//! `docs/formats/squashfs.md`.

use forerun_vfs::on_disk;
use zerocopy::little_endian::{I16, U16, U32, U64};

/// The magic number of 4.0: `hsqs` as a little-endian word.
#[cfg(feature = "write")]
pub const MAGIC: u32 = 0x7371_7368;
/// The supported 4.x version, as (major, minor).
pub const VERSION: (u16, u16) = (4, 0);
/// Decoded length of a metadata block in bytes; the last block of a table may be shorter.
pub const METADATA_BLOCK: usize = 8192;
/// Flag in a metadata block header: the block is uncompressed.
pub const METADATA_STORED: u16 = 0x8000;
/// Flag in the size of a data or fragment block: the block is uncompressed.
pub const BLOCK_STORED: u32 = 1 << 24;
/// A size that mksquashfs 4.7.3 and 4.7.4 store for some holes instead of 0, with or without
/// [`BLOCK_STORED`].
pub const WRONG_HOLE: u32 = u32::MAX;
/// Marks a missing table, fragment or xattr set.
pub const NONE_64: u64 = u64::MAX;
pub const NONE_32: u32 = u32::MAX;
/// Most entries of a run.
pub const DIR_RUN: u32 = 256;

/// A value whose numbers may have either byte order in an image.
pub trait Numbers {
    /// Swaps the bytes of each number.
    fn turn_round(&mut self);
}

/// Raw bytes stay as they are; their reader converts them.
impl<const N: usize> Numbers for [u8; N] {
    fn turn_round(&mut self) {}
}

macro_rules! numbers {
    ($($kind:ty)*) => {$(
        impl Numbers for $kind {
            fn turn_round(&mut self) {
                self.set(self.get().swap_bytes());
            }
        }
    )*};
}

numbers!(U16 I16 U32 U64);

/// Defines an [`on_disk!`] structure whose fields are all numbers.
macro_rules! structure {
    ($(#[$doc:meta])* $name:ident, $len:literal { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* }) => {
        on_disk! {
            $(#[$doc])*
            $name, $len { $($(#[$field_doc])* $field: $kind,)* }
        }

        impl Numbers for $name {
            fn turn_round(&mut self) {
                $(self.$field.turn_round();)*
            }
        }
    };
}

structure! {
    Superblock, 96 {
        s_magic: U32,
        inodes: U32,
        mkfs_time: U32,
        block_size: U32,
        fragments: U32,
        compression: U16,
        block_log: U16,
        flags: U16,
        no_ids: U16,
        s_major: U16,
        s_minor: U16,
        root_inode: U64,
        bytes_used: U64,
        id_table_start: U64,
        xattr_id_table_start: U64,
        inode_table_start: U64,
        directory_table_start: U64,
        fragment_table_start: U64,
        lookup_table_start: U64,
    }
}

/// Bits of [`Superblock::flags`].
pub mod flags {
    pub const UNCOMPRESSED_INODES: u16 = 0x0001;
    pub const UNCOMPRESSED_DATA: u16 = 0x0002;
    /// A byte 0xff follows each metadata block header; before 4.0 only.
    pub const CHECK_DATA: u16 = 0x0004;
    pub const UNCOMPRESSED_FRAGMENTS: u16 = 0x0008;
    pub const NO_FRAGMENTS: u16 = 0x0010;
    /// Large files have fragments too.
    pub const ALWAYS_FRAGMENTS: u16 = 0x0020;
    /// Files with equal contents share blocks.
    pub const DUPLICATES: u16 = 0x0040;
    pub const EXPORTABLE: u16 = 0x0080;
    pub const UNCOMPRESSED_XATTRS: u16 = 0x0100;
    pub const NO_XATTRS: u16 = 0x0200;
    /// A metadata block with compressor options follows the superblock.
    pub const COMPRESSOR_OPTIONS: u16 = 0x0400;
    pub const UNCOMPRESSED_IDS: u16 = 0x0800;
}

/// Values of [`Superblock::compression`].
pub mod compression {
    pub const GZIP: u16 = 1;
    pub const LZMA: u16 = 2;
    pub const LZO: u16 = 3;
    pub const XZ: u16 = 4;
    pub const LZ4: u16 = 5;
    pub const ZSTD: u16 = 6;
}

/// Values of [`InodeHeader::inode_type`]; extended types add [`EXTENDED`](kind::EXTENDED).
pub mod kind {
    pub const DIR: u16 = 1;
    pub const REG: u16 = 2;
    pub const SYMLINK: u16 = 3;
    pub const BLKDEV: u16 = 4;
    pub const CHRDEV: u16 = 5;
    pub const FIFO: u16 = 6;
    pub const SOCKET: u16 = 7;
    /// Difference between a basic type and its extended form.
    pub const EXTENDED: u16 = 7;
}

structure! {
    /// The start of every inode.
    InodeHeader, 16 {
        inode_type: U16,
        mode: U16,
        uid: U16,
        guid: U16,
        mtime: U32,
        inode_number: U32,
    }
}

structure! {
    /// A directory, after the inode header.
    BasicDir, 16 {
        start_block: U32,
        nlink: U32,
        /// Three more than the listing's length.
        file_size: U16,
        offset: U16,
        parent_inode: U32,
    }
}

structure! {
    /// An extended directory, after the inode header; `i_count` [`DirIndex`]es follow.
    ExtendedDir, 24 {
        nlink: U32,
        /// Three more than the listing's length.
        file_size: U32,
        start_block: U32,
        parent_inode: U32,
        i_count: U16,
        offset: U16,
        xattr: U32,
    }
}

structure! {
    /// A position in a long listing; `size` + 1 bytes of name follow.
    DirIndex, 12 {
        /// Offset in the listing of the header that the index points to.
        index: U32,
        /// The metadata block of that header, from the start of the directory table.
        start_block: U32,
        size: U32,
    }
}

structure! {
    /// A regular file, after the inode header; its block sizes follow.
    BasicFile, 16 {
        start_block: U32,
        fragment: U32,
        offset: U32,
        file_size: U32,
    }
}

structure! {
    /// An extended regular file, after the inode header; its block sizes follow.
    ExtendedFile, 40 {
        start_block: U64,
        file_size: U64,
        /// Bytes in holes.
        sparse: U64,
        nlink: U32,
        fragment: U32,
        offset: U32,
        xattr: U32,
    }
}

structure! {
    /// A symbolic link, after the inode header. The target follows, and in the extended form its
    /// xattr index.
    Symlink, 8 {
        nlink: U32,
        symlink_size: U32,
    }
}

structure! {
    /// A device, after the inode header; in the extended form its xattr index follows.
    DeviceNode, 8 {
        nlink: U32,
        rdev: U32,
    }
}

structure! {
    /// A pipe or socket, after the inode header; in the extended form its xattr index follows.
    Ipc, 4 {
        nlink: U32,
    }
}

structure! {
    /// The header of a run of directory entries.
    DirHeader, 12 {
        /// Number of entries in the run minus one.
        count: U32,
        /// The metadata block with the inodes of these entries, as an offset from the start of the
        /// inode table.
        start_block: U32,
        inode_number: U32,
    }
}

structure! {
    /// A directory entry; `size` + 1 bytes of name follow.
    DirEntry, 8 {
        offset: U16,
        /// Difference from the inode number of the header.
        inode_number: I16,
        /// The basic type, even if the inode is extended.
        kind: U16,
        size: U16,
    }
}

structure! {
    FragmentEntry, 16 {
        start_block: U64,
        size: U32,
        unused: U32,
    }
}

structure! {
    /// The start of the xattr table; the offsets of its blocks of [`XattrId`]s follow.
    XattrTable, 16 {
        xattr_table_start: U64,
        xattr_ids: U32,
        unused: U32,
    }
}

structure! {
    /// A set of xattrs that inodes may share.
    XattrId, 16 {
        /// Position of the set, as a reference from the start of the xattr names and values.
        xattr: U64,
        count: U32,
        /// Length of the set in bytes, as `getfattr` counts.
        size: U32,
    }
}

structure! {
    /// The name of an xattr; `size` bytes follow, without the prefix that `kind` stands for.
    XattrName, 4 {
        kind: U16,
        size: U16,
    }
}

/// Bits of [`XattrName::kind`].
pub mod xattr {
    /// Mask of the prefix number.
    pub const PREFIX: u16 = 0x00ff;
    /// The value is stored elsewhere: an 8-byte reference follows.
    pub const OUT_OF_LINE: u16 = 0x0100;
    pub const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
}
