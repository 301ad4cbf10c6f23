//! What the superblock says, as numbers: for programs that show it.

use forerun_vfs::{ByteOrder, Result};

use crate::driver::Squashfs;
use crate::ondisk::flags;
use crate::options;
pub use crate::options::CompressorOptions;
use crate::superblock::compressor;

/// The bits of the superblock's flags.
pub mod superblock_flags {
    pub use crate::ondisk::flags::*;
}

/// The fields of the superblock, and of the tables it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SuperblockFacts {
    /// The version of the format.
    pub version: (u16, u16),
    /// The byte order, where it says more than the version.
    pub order: Option<ByteOrder>,
    /// The name of the compressor, as `mksquashfs -comp` has it.
    pub compressor: &'static str,
    /// How it was called, if the image says so.
    pub options: Option<CompressorOptions>,
    /// The bits of [`superblock_flags`].
    pub flags: u16,
    /// When the image was made, in seconds.
    pub mkfs_time: u32,
    /// The length of the image.
    pub bytes_used: u64,
    /// The length of data blocks.
    pub block_size: u32,
    /// The number of fragment blocks.
    pub fragments: u32,
    /// The number of inodes.
    pub inodes: u32,
    /// The number of owners and groups.
    pub ids: u16,
    /// The number of different sets of attributes.
    pub xattr_sets: u64,
    /// Whether there is a table of inodes for NFS.
    pub has_export_table: bool,
}

impl SuperblockFacts {
    /// Returns whether a bit of [`superblock_flags`] is set.
    #[must_use]
    pub const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

impl Squashfs {
    /// Returns what the superblock says.
    ///
    /// # Errors
    /// The errors of reading the options of the compressor.
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
