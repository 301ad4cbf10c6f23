//! The bytes of SquashFS 4.0 as they lie in the image: little-endian, without padding.
//!
//! A vendor's images have the same structures with big-endian numbers. These are turned round as soon as a
//! structure is read ([`Numbers`]), so that everything behind the readers has one byte order.
//!
//! Field names are those of the format's description; meaning and checks are elsewhere. See
//! `docs/formats/squashfs.md`.

use forerun_vfs::on_disk;
use zerocopy::little_endian::{I16, U16, U32, U64};

/// The magic of 4.0: `hsqs`, read as a little-endian word.
#[cfg(feature = "write")]
pub const MAGIC: u32 = 0x7371_7368;
/// The only version this crate reads and writes, as (major, minor).
pub const VERSION: (u16, u16) = (4, 0);
/// Decoded length of a metadata block, in bytes; the last of a table may be shorter.
pub const METADATA_BLOCK: usize = 8192;
/// Flag in the header of a metadata block: it is stored as it is.
pub const METADATA_STORED: u16 = 0x8000;
/// Flag in the size of a data or fragment block: it is stored as it is.
pub const BLOCK_STORED: u32 = 1 << 24;
/// A hole as mksquashfs 4.7.3 and 4.7.4 store some of them, in place of 0, with or without [`BLOCK_STORED`].
pub const WRONG_HOLE: u32 = u32::MAX;
/// In place of a table's offset, a fragment's or an xattr's number: there is none.
pub const NONE_64: u64 = u64::MAX;
/// As [`NONE_64`], in 32 bits.
pub const NONE_32: u32 = u32::MAX;
/// Most entries behind one directory header.
pub const DIR_RUN: u32 = 256;

/// A value whose numbers an image may have in either byte order.
pub trait Numbers {
    /// Turns the bytes of each number round.
    fn turn_round(&mut self);
}

/// Bytes that the reader takes for numbers itself.
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

/// Defines a structure with [`on_disk!`], all of whose fields are numbers.
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
    /// The superblock, at offset 0.
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
    /// Inodes are stored as they are.
    pub const UNCOMPRESSED_INODES: u16 = 0x0001;
    /// Data blocks are stored as they are.
    pub const UNCOMPRESSED_DATA: u16 = 0x0002;
    /// A byte 0xff follows the header of each metadata block; before 4.0.
    pub const CHECK_DATA: u16 = 0x0004;
    /// Fragment blocks are stored as they are.
    pub const UNCOMPRESSED_FRAGMENTS: u16 = 0x0008;
    /// There are no fragments.
    pub const NO_FRAGMENTS: u16 = 0x0010;
    /// The ends of large files are in fragments too.
    pub const ALWAYS_FRAGMENTS: u16 = 0x0020;
    /// Files with equal contents share blocks.
    pub const DUPLICATES: u16 = 0x0040;
    /// There is an export table.
    pub const EXPORTABLE: u16 = 0x0080;
    /// Extended attributes are stored as they are.
    pub const UNCOMPRESSED_XATTRS: u16 = 0x0100;
    /// There are no extended attributes.
    pub const NO_XATTRS: u16 = 0x0200;
    /// A metadata block of compressor options follows the superblock.
    pub const COMPRESSOR_OPTIONS: u16 = 0x0400;
    /// Ids are stored as they are.
    pub const UNCOMPRESSED_IDS: u16 = 0x0800;
}

/// Values of [`Superblock::compression`].
pub mod compression {
    pub const GZIP: u16 = 1;
    pub const LZMA: u16 = 2;
    pub const LZO: u16 = 3;
    pub const XZ: u16 = 4;
    /// LZ4.
    pub const LZ4: u16 = 5;
    pub const ZSTD: u16 = 6;
}

/// Values of [`InodeHeader::inode_type`]; the extended ones are [`EXTENDED`](kind::EXTENDED) more.
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
    /// A directory, behind the header.
    BasicDir, 16 {
        start_block: U32,
        nlink: U32,
        /// Three more than the length of the listing.
        file_size: U16,
        offset: U16,
        parent_inode: U32,
    }
}

structure! {
    /// An extended directory, behind the header; `i_count` [`DirIndex`]es follow.
    ExtendedDir, 24 {
        nlink: U32,
        /// Three more than the length of the listing.
        file_size: U32,
        start_block: U32,
        parent_inode: U32,
        i_count: U16,
        offset: U16,
        xattr: U32,
    }
}

structure! {
    /// A place in a long directory; `size` + 1 bytes of name follow.
    DirIndex, 12 {
        /// Bytes of the listing before the header it points to.
        index: U32,
        /// The metadata block that header starts in, from the start of the directory table.
        start_block: U32,
        size: U32,
    }
}

structure! {
    /// A regular file, behind the header; the sizes of its blocks follow.
    BasicFile, 16 {
        start_block: U32,
        fragment: U32,
        offset: U32,
        file_size: U32,
    }
}

structure! {
    /// An extended regular file, behind the header; the sizes of its blocks follow.
    ExtendedFile, 40 {
        start_block: U64,
        file_size: U64,
        /// Bytes of its blocks that are zeros and not stored.
        sparse: U64,
        nlink: U32,
        fragment: U32,
        offset: U32,
        xattr: U32,
    }
}

structure! {
    /// A symbolic link, behind the header; the target follows, and in the extended form the number
    /// of its xattrs after that.
    Symlink, 8 {
        nlink: U32,
        symlink_size: U32,
    }
}

structure! {
    /// A device, behind the header; in the extended form the number of its xattrs follows.
    DeviceNode, 8 {
        nlink: U32,
        rdev: U32,
    }
}

structure! {
    /// A pipe or socket, behind the header; in the extended form the number of its xattrs follows.
    Ipc, 4 {
        nlink: U32,
    }
}

structure! {
    /// The start of a run of directory entries.
    DirHeader, 12 {
        /// One less than the entries of the run.
        count: U32,
        /// The metadata block of their inodes, as an offset from the start of the inode table.
        start_block: U32,
        inode_number: U32,
    }
}

structure! {
    /// A directory entry; `size` + 1 bytes of name follow.
    DirEntry, 8 {
        offset: U16,
        /// Difference to the inode number of the header.
        inode_number: I16,
        /// The basic type, also of an extended inode.
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
    /// The xattrs of the inodes that share them.
    XattrId, 16 {
        /// Their place, as a metadata reference from the start of the xattr keys and values.
        xattr: U64,
        count: U32,
        /// Their length in bytes, as `getfattr` counts.
        size: U32,
    }
}

structure! {
    /// The name of an xattr; `size` bytes follow, without the prefix that the type stands for.
    XattrName, 4 {
        kind: U16,
        size: U16,
    }
}

/// Bits of [`XattrName::kind`].
pub mod xattr {
    /// The bits for the prefix.
    pub const PREFIX: u16 = 0x00ff;
    /// The value is elsewhere: an 8-byte reference to it follows.
    pub const OUT_OF_LINE: u16 = 0x0100;
    /// The prefixes, by their number.
    pub const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
}
