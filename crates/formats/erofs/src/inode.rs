//! Parses and validates inodes.

use forerun_vfs::{Device, Error, FileType, NodeId, Result, Timestamp};
use zerocopy::FromBytes;

use crate::address::Address;
use crate::error::Check;
use crate::ondisk::{InodeCompact, InodeExtended, format, incompat};
use crate::superblock::Superblock;

/// Length of the extended form. [`Inode::parse`] wants this many bytes unless the space ends
/// earlier.
pub const MAX_LEN: usize = 64;

/// Largest file size: two bits below the maximum of an offset, so that a sum of a few sizes cannot
/// overflow.
const MAX_FILE: u64 = 1 << 62;

#[derive(Clone, Debug)]
pub struct Inode {
    pub node: NodeId,
    pub at: Address,
    pub is_extended: bool,
    /// Whether the directory stores no entry for `.`.
    pub dot_omitted: bool,
    pub layout: DataLayout,
    pub file_type: FileType,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub nlink: u32,
    pub mtime: Timestamp,
    /// The 32-bit inode number that `stat` shows on 32-bit systems.
    pub number: u32,
    pub xattr_len: u64,
    /// Block number, chunk format or device number, depending on the layout.
    pub word: u32,
    /// High part of a block number or block count.
    pub high: u16,
    /// Whether block numbers of this inode have 48 bits.
    pub is_48: bool,
    /// Nanoseconds as stored, unchecked; in `mtime` they are capped at 999,999,999.
    pub stored_nanoseconds: u32,
    /// Reserved bits that are set.
    pub reserved: Vec<(&'static str, u64)>,
}

pub const MOST_NANOSECONDS: u32 = 999_999_999;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataLayout {
    /// Contiguous blocks.
    Plain,
    /// Compressed, with an index of 8 bytes for each cluster.
    CompressedFull,
    /// Contiguous blocks, and a tail that follows the inode.
    Inline,
    /// Compressed, with a compacted index or a list of extents.
    CompressedCompact,
    /// Chunks, each with an address of its own.
    Chunks,
}

impl DataLayout {
    const ALL: [Self; 5] = [
        Self::Plain,
        Self::CompressedFull,
        Self::Inline,
        Self::CompressedCompact,
        Self::Chunks,
    ];

    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::CompressedFull => 1,
            Self::Inline => 2,
            Self::CompressedCompact => 3,
            Self::Chunks => 4,
        }
    }

    pub const fn is_compressed(self) -> bool {
        matches!(self, Self::CompressedFull | Self::CompressedCompact)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "flat_plain",
            Self::CompressedFull => "compressed_full",
            Self::Inline => "flat_inline",
            Self::CompressedCompact => "compressed_compact",
            Self::Chunks => "chunk_based",
        }
    }
}

impl Inode {
    /// Parses the inode at `at`. `bytes` must be the first [`MAX_LEN`] bytes there, or fewer if the
    /// space ends earlier.
    pub fn parse(bytes: &[u8], at: Address, node: NodeId, superblock: &Superblock) -> Result<Self> {
        let fail = |check: Check| Err(check.at(Some(node), at.offset));
        let need = |len: u64| {
            let end = at.offset + len;
            let have = at.offset + forerun_io::u64_from(bytes.len());
            let what = "inode";
            Check::Outside {
                what,
                start: at.offset,
                end,
                image: have,
            }
            .at(Some(node), at.offset)
        };
        let Ok((raw, _)) = InodeCompact::read_from_prefix(bytes) else {
            return Err(need(32));
        };
        let word = raw.i_format.get();
        let layout = usize::from(word >> format::LAYOUT_SHIFT & format::LAYOUT);
        let Some(&layout) = DataLayout::ALL.get(layout) else {
            return Err(Error::Unsupported(format!(
                "inode layout {layout} of node {node}"
            )));
        };
        if word & !format::KNOWN != 0 {
            let unknown = word & !format::KNOWN;
            let what = format!("inode of node {node} with unknown bits {unknown:#x}");
            return Err(Error::Unsupported(what));
        }
        let mode = raw.i_mode.get();
        let Some(file_type) = file_type(mode) else {
            return fail(Check::InodeKind { mode });
        };
        let is_48 = superblock.has(incompat::BITS_48);
        let is_flagged = is_48 && word & format::NLINK_1 != 0;
        let is_dir = file_type == FileType::Directory;
        let mut inode = Self {
            node,
            at,
            is_extended: word & format::EXTENDED != 0,
            dot_omitted: is_flagged && is_dir,
            layout,
            file_type,
            mode: mode & 0o7777,
            uid: 0,
            gid: 0,
            size: 0,
            nlink: 1,
            mtime: Timestamp::default(),
            stored_nanoseconds: 0,
            number: raw.i_ino.get(),
            xattr_len: match u64::from(raw.i_xattr_icount.get()) {
                0 => 0,
                count => 12 + (count - 1) * 4,
            },
            word: raw.i_u.get(),
            high: 0,
            is_48: false,
            reserved: Vec::new(),
        };
        if inode.is_extended {
            let Ok((raw, _)) = InodeExtended::read_from_prefix(bytes) else {
                return Err(need(64));
            };
            inode.extended(&raw, is_48);
        } else {
            inode.compact(&raw, is_48, is_flagged && !is_dir, superblock);
        }
        if inode.size > MAX_FILE {
            return fail(Check::HugeFile { size: inode.size });
        }
        Ok(inode)
    }

    fn compact(
        &mut self,
        raw: &InodeCompact,
        is_48: bool,
        has_one_link: bool,
        superblock: &Superblock,
    ) {
        self.uid = u32::from(raw.i_uid.get());
        self.gid = u32::from(raw.i_gid.get());
        self.size = u64::from(raw.i_size.get());
        if has_one_link {
            self.high = raw.i_nb.get();
            self.is_48 = true;
        } else {
            self.nlink = u32::from(raw.i_nb.get());
        }
        let later = if is_48 { raw.i_mtime.get() } else { 0 };
        self.mtime = Timestamp {
            seconds: superblock.epoch + i64::from(later),
            nanoseconds: superblock.nanoseconds.min(MOST_NANOSECONDS),
        };
        self.keep_reserved("i_reserved", u64::from(raw.i_reserved.get()));
        if !is_48 {
            self.keep_reserved("i_mtime", u64::from(raw.i_mtime.get()));
        }
    }

    fn extended(&mut self, raw: &InodeExtended, is_48: bool) {
        self.uid = raw.i_uid.get();
        self.gid = raw.i_gid.get();
        self.size = raw.i_size.get();
        self.nlink = raw.i_nlink.get();
        self.is_48 = is_48;
        if is_48 {
            self.high = raw.i_nb.get();
        } else {
            self.keep_reserved("i_nb", u64::from(raw.i_nb.get()));
        }
        self.stored_nanoseconds = raw.i_mtime_nsec.get();
        self.mtime = Timestamp {
            seconds: raw.i_mtime.get().cast_signed(),
            nanoseconds: self.stored_nanoseconds.min(MOST_NANOSECONDS),
        };
        let set = raw.i_reserved2.iter().find(|&&byte| byte != 0);
        self.keep_reserved("i_reserved2", set.copied().map_or(0, u64::from));
    }

    fn keep_reserved(&mut self, field: &'static str, value: u64) {
        if value != 0 {
            self.reserved.push((field, value));
        }
    }

    pub const fn len(&self) -> u64 {
        if self.is_extended { 64 } else { 32 }
    }

    pub const fn xattrs(&self) -> Address {
        self.at.plus(self.len())
    }

    /// Returns the address after the inode and its xattrs. An inline tail, chunk table or
    /// compression header starts there.
    pub const fn end(&self) -> Address {
        self.xattrs().plus(self.xattr_len)
    }

    /// Returns the first block of a flat file, or `None` if the file is zeros that are not stored.
    pub fn start_block(&self) -> Option<u64> {
        block(self.word, self.high, self.is_48)
    }

    /// Returns the device number; 0:0 for other file types.
    pub const fn device(&self) -> Device {
        match self.file_type {
            FileType::BlockDevice | FileType::CharDevice => Device::unpack(self.word),
            _ => Device { major: 0, minor: 0 },
        }
    }
}

/// Combines a block number of 32 or 48 bits. Returns `None` if all bits are set, which means zeros.
pub fn block(low: u32, high: u16, is_48: bool) -> Option<u64> {
    if is_48 {
        let block = u64::from(high) << 32 | u64::from(low);
        (low != u32::MAX || high != u16::MAX).then_some(block)
    } else {
        (low != u32::MAX).then_some(u64::from(low))
    }
}

/// Returns the file type of a mode, or `None` if its type bits are invalid.
pub const fn file_type(mode: u16) -> Option<FileType> {
    Some(match mode & 0o170_000 {
        0o040_000 => FileType::Directory,
        0o100_000 => FileType::Regular,
        0o120_000 => FileType::Symlink,
        0o060_000 => FileType::BlockDevice,
        0o020_000 => FileType::CharDevice,
        0o010_000 => FileType::Fifo,
        0o140_000 => FileType::Socket,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_numbers() {
        for (low, high, is_48, expected) in [
            (5, 0, false, Some(5)),
            (5, 7, false, Some(5)),
            (u32::MAX, 0, false, None),
            (u32::MAX, 0, true, Some(0xffff_ffff)),
            (5, 7, true, Some(0x7_0000_0005)),
            (u32::MAX, u16::MAX, true, None),
        ] {
            assert_eq!(block(low, high, is_48), expected, "{low:#x} {high:#x}");
        }
    }
}
