//! The superblock of 1.x to 3.x: 51, 63 or 119 bytes, each version extending the previous one.

use forerun_codec::Codec;
use forerun_vfs::{ByteOrder, Result};

use super::Superblock;
use crate::bits::Bits;
use crate::error::Check;
use crate::ondisk::flags;
use crate::reference::Reference;
use crate::variant;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    V1,
    V2,
    V3,
}

impl Version {
    pub const fn major(self) -> u16 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }
}

/// Fields that only images of 1.x to 3.x have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Legacy {
    pub version: Version,
    pub minor: u16,
    pub order: ByteOrder,
    /// The first four bytes, which vendors change.
    pub magic: [u8; 4],
    /// Whether a byte 0xff follows each metadata block header.
    pub has_marker: bool,
    /// Offset and count of the user ids.
    pub uids: (u64, u16),
    /// Offset and count of the group ids.
    pub gids: (u64, u16),
    /// Offset of the end of the superblock.
    pub head: u64,
}

impl Legacy {
    /// Returns version and byte order if this is an image of 1.x to 3.x. The byte order comes from
    /// the version field: vendors' magic numbers are unreliable.
    pub fn recognise(head: &[u8]) -> Option<(Version, ByteOrder)> {
        if !variant::is_any(head) {
            return None;
        }
        let (major, order) = match *head.get(28..32)? {
            [major, 0, _, 0] => (major, ByteOrder::Little),
            [0, major, 0, _] => (major, ByteOrder::Big),
            _ => return None,
        };
        let version = match major {
            1 => Version::V1,
            2 => Version::V2,
            3 => Version::V3,
            _ => return None,
        };
        Some((version, order))
    }

    pub fn version_text(&self) -> String {
        format!("{}.{}", self.version.major(), self.minor)
    }

    /// Returns whether the version sorts the names of listings.
    pub fn is_sorted(&self) -> bool {
        self.version == Version::V3
    }

    /// Returns whether inodes have numbers and link counts.
    pub fn has_numbers(&self) -> bool {
        self.version == Version::V3
    }

    /// Parses the head of a 1.x to 3.x image in a source of `source_len` bytes. Sets the codec to
    /// zlib, the usual one; see [`candidates`](crate::legacy::candidates).
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn parse(head: &[u8], source_len: u64, found: (Version, ByteOrder)) -> Result<Superblock> {
        let fail = |check: Check| Err(check.at(None, 0));
        let (version, order) = found;
        let len = match version {
            Version::V1 => 51,
            Version::V2 => 63,
            Version::V3 => 119,
        };
        let Some(bytes) = head.get(..len) else {
            return fail(Check::ShortOldSuperblock {
                len: source_len,
                need: len,
            });
        };
        let raw = Raw::parse(bytes, order, version);
        let smallest = if version == Version::V1 { 9 } else { 12 };
        let (block_size, log) = (raw.block_size, raw.block_log);
        if !(smallest..=20).contains(&log) || block_size != 1 << log {
            return fail(Check::BlockSize { block_size, log });
        }
        if raw.bytes_used > source_len {
            return fail(Check::SourceTooShort {
                bytes_used: raw.bytes_used,
                source_len,
            });
        }
        let has_fragments = raw.fragments > 0;
        let is_exported = raw.flags & flags::EXPORTABLE != 0 && version == Version::V3;
        let magic = head.first_chunk().copied().unwrap_or_default();
        let superblock = Superblock {
            inodes: raw.inodes,
            mkfs_time: raw.mkfs_time,
            block_size,
            fragments: raw.fragments,
            codec: Codec::Zlib,
            flags: raw.flags,
            ids: raw.uids.1 + raw.gids.1,
            root: Reference::from_raw(raw.root),
            bytes_used: raw.bytes_used,
            declared_len: raw.bytes_used,
            order,
            headers: order,
            id_table: raw.uids.0,
            xattr_table: None,
            inode_table: raw.inode_table,
            directory_table: raw.directory_table,
            fragment_table: has_fragments.then_some(raw.fragment_table),
            export_table: Some(raw.export_table)
                .filter(|&start| is_exported && start < raw.bytes_used),
            legacy: Some(Legacy {
                version,
                minor: raw.minor,
                order,
                magic,
                has_marker: raw.flags & flags::CHECK_DATA != 0,
                uids: raw.uids,
                gids: raw.gids,
                head: forerun_io::u64_from(len),
            }),
        };
        check_ids(&superblock, raw.uids, "uid table")?;
        check_ids(&superblock, raw.gids, "guid table")?;
        Ok(superblock)
    }

    pub fn fragment_len(&self) -> u64 {
        if self.version == Version::V3 { 16 } else { 8 }
    }

    /// Returns the lengths of a run header and of an entry in a listing.
    pub const fn listing_lens(&self) -> (usize, usize) {
        match self.version {
            Version::V1 | Version::V2 => (4, 3),
            Version::V3 => (9, 5),
        }
    }

    /// Returns the length of a data block's size field.
    pub fn block_word_len(&self) -> u64 {
        if self.version == Version::V1 { 2 } else { 4 }
    }
}

fn check_ids(
    superblock: &Superblock,
    (start, count): (u64, u16),
    table: &'static str,
) -> Result<()> {
    let end = superblock.bytes_used;
    let last = start.checked_add(u64::from(count) * 4);
    if count > 0 && last.is_none_or(|last| last > end) {
        return Err(Check::TableOutside { table, start, end }.at(None, 0));
    }
    Ok(())
}

/// The fields in their on-disk order.
struct Raw {
    inodes: u32,
    bytes_used: u64,
    uids: (u64, u16),
    gids: (u64, u16),
    inode_table: u64,
    directory_table: u64,
    minor: u16,
    block_log: u16,
    flags: u16,
    mkfs_time: u32,
    root: u64,
    block_size: u32,
    fragments: u32,
    fragment_table: u64,
    export_table: u64,
}

impl Raw {
    fn parse(bytes: &[u8], order: ByteOrder, version: Version) -> Self {
        let mut bits = Bits::new(bytes, order);
        let _magic = bits.u32(32);
        let inodes = bits.u32(32);
        let bytes_used = bits.u64(32);
        let (uid_start, guid_start) = (bits.u64(32), bits.u64(32));
        let (inode_table, directory_table) = (bits.u64(32), bits.u64(32));
        let (_major, minor) = (bits.u16(16), bits.u16(16));
        let (block_size, block_log) = (bits.u32(16), bits.u16(16));
        let (flags, uids, guids) = (bits.u16(8), bits.u16(8), bits.u16(8));
        let mut raw = Self {
            inodes,
            bytes_used,
            uids: (uid_start, uids),
            gids: (guid_start, guids),
            inode_table,
            directory_table,
            minor,
            block_log,
            flags,
            mkfs_time: bits.u32(32),
            root: bits.u64(64),
            block_size,
            fragments: 0,
            fragment_table: 0,
            export_table: 0,
        };
        // Fields that an older version does not have are past the end of `bytes`, and read as zero.
        if version >= Version::V2 {
            raw.block_size = bits.u32(32);
            raw.fragments = bits.u32(32);
            raw.fragment_table = bits.u64(32);
        }
        if version == Version::V3 {
            raw.bytes_used = bits.u64(64);
            (raw.uids.0, raw.gids.0) = (bits.u64(64), bits.u64(64));
            raw.inode_table = bits.u64(64);
            raw.directory_table = bits.u64(64);
            raw.fragment_table = bits.u64(64);
            raw.export_table = bits.u64(64);
        }
        raw
    }
}
