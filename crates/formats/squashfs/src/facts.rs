//! The superblock as numbers, for programs that display it.

use forerun_vfs::{ByteOrder, Result};

use crate::driver::Squashfs;
use crate::ondisk::flags;
use crate::options;
pub use crate::options::CompressorOptions;
use crate::superblock::compressor;

pub mod superblock_flags {
    pub use crate::ondisk::flags::*;
}

/// The fields of the superblock and of the tables that it points to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SuperblockFacts {
    pub version: (u16, u16),
    /// The byte order, if the version does not imply it.
    pub order: Option<ByteOrder>,
    /// The compressor's name for `mksquashfs -comp`.
    pub compressor: &'static str,
    /// The compressor options, if the image stores them.
    pub options: Option<CompressorOptions>,
    /// Bits of [`superblock_flags`].
    pub flags: u16,
    /// Creation time of the image in seconds.
    pub mkfs_time: u32,
    /// The length of the image in bytes.
    pub bytes_used: u64,
    pub block_size: u32,
    /// Number of fragment blocks.
    pub fragments: u32,
    pub inodes: u32,
    /// Number of different owner and group ids.
    pub ids: u16,
    /// Number of different sets of extended attributes.
    pub xattr_sets: u64,
    /// Whether the image has an export table, which NFS servers need.
    pub has_export_table: bool,
}

impl SuperblockFacts {
    #[must_use]
    pub const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

impl Squashfs {
    /// Returns the fields of the superblock.
    ///
    /// # Errors
    /// The errors of reading the compressor options.
    pub fn superblock(&self) -> Result<SuperblockFacts> {
        let superblock = &self.image.superblock;
        let legacy = superblock.legacy.as_ref();
        let is_big = superblock.order == ByteOrder::Big;
        let has_options = superblock.flags & flags::COMPRESSOR_OPTIONS != 0;
        Ok(SuperblockFacts {
            version: legacy.map_or((4, 0), |legacy| (legacy.version.major(), legacy.minor)),
            order: (legacy.is_some() || is_big).then_some(superblock.order),
            compressor: compressor(superblock.codec),
            options: if has_options {
                options::read(&self.image)?
            } else {
                None
            },
            flags: superblock.flags,
            mkfs_time: superblock.mkfs_time,
            bytes_used: superblock.bytes_used,
            block_size: superblock.block_size,
            fragments: superblock.fragments,
            inodes: superblock.inodes,
            ids: superblock.ids,
            xattr_sets: self.image.xattrs.as_ref().map_or(0, |table| table.count()),
            has_export_table: superblock.export_table.is_some(),
        })
    }
}
