use forerun_io::{u16_from, usize_from};
use forerun_vfs::{ByteOrder, Device, FileType};

use crate::error::Check;
use crate::ondisk::{BLOCK, INODE_LEN, UNIT, split, word};

/// An inode whose type is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    pub kind: FileType,
    /// The mode as stored, including the bits of the type.
    pub mode: u16,
    pub uid: u16,
    pub gid: u8,
    /// Bytes of data or of entries; for a device its number.
    pub size: u32,
    /// Length of the name that follows, with its padding.
    pub name_len: usize,
    /// Byte offset in the image of the block table, or of the first entry.
    pub offset: u64,
}

impl Inode {
    /// Parses the first [`INODE_LEN`] bytes of `bytes`.
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Result<Self, Check> {
        if bytes.len() < INODE_LEN {
            return Err(Check::InodeCut { len: bytes.len() });
        }
        let field = |at, width| split(order, word(bytes, at, order), width);
        let (mode, uid) = field(0, 16);
        let (size, gid) = field(4, 24);
        let (name_units, offset_units) = field(8, 6);
        // The widths of the bit fields above bound all of these.
        let mode = u16_from(u64::from(mode));
        let [gid, ..] = gid.to_le_bytes();
        Ok(Self {
            kind: kind(mode).ok_or(Check::Mode { mode })?,
            mode,
            uid: u16_from(u64::from(uid)),
            gid,
            size,
            name_len: name_len(name_units),
            offset: u64::from(offset_units) * UNIT,
        })
    }

    /// Returns the length of the name after an inode, even if the inode is invalid.
    pub fn name_len_of(bytes: &[u8], order: ByteOrder) -> usize {
        name_len(split(order, word(bytes, 8, order), 6).0)
    }

    /// Returns the device number. Linux packs it into 32 bits, of which the format stores 24.
    pub const fn device(&self) -> Device {
        Device::unpack(self.size)
    }

    pub fn blocks(&self) -> u64 {
        u64::from(self.size).div_ceil(BLOCK)
    }

    /// Returns whether the offset points to data or entries.
    pub const fn has_data(&self) -> bool {
        match self.kind {
            FileType::Directory | FileType::Regular | FileType::Symlink => self.size > 0,
            FileType::BlockDevice | FileType::CharDevice | FileType::Fifo | FileType::Socket => {
                false
            }
        }
    }

    /// Returns the fields that have no effect and should be 0. The root's inode has an offset even
    /// if the root is empty.
    pub fn deviations(&self, is_root: bool) -> Vec<Check> {
        let mut found = Vec::new();
        if !self.has_data() && !is_root && self.offset != 0 {
            let offset = self.offset;
            found.push(Check::UselessOffset { offset });
        }
        if matches!(self.kind, FileType::Fifo | FileType::Socket) && self.size != 0 {
            found.push(Check::UselessSize { size: self.size });
        }
        found
    }
}

fn name_len(units: u32) -> usize {
    usize_from(u64::from(units) * UNIT)
}

const fn kind(mode: u16) -> Option<FileType> {
    Some(match mode >> 12 {
        0o01 => FileType::Fifo,
        0o02 => FileType::CharDevice,
        0o04 => FileType::Directory,
        0o06 => FileType::BlockDevice,
        0o10 => FileType::Regular,
        0o12 => FileType::Symlink,
        0o14 => FileType::Socket,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_an_inode_of_either_order() {
        // y of mode 04755, 1000:44, 2 bytes at 0xe504, as mkfs.cramfs wrote it, and the same in the
        // other byte order.
        for (order, bytes) in [
            (
                ByteOrder::Little,
                [0xed, 0x89, 0xe8, 3, 2, 0, 0, 0x2c, 0x41, 0x94, 3, 0],
            ),
            (
                ByteOrder::Big,
                [0x89, 0xed, 3, 0xe8, 0, 0, 2, 0x2c, 4, 0, 0x0e, 0x51],
            ),
        ] {
            let expected = Inode {
                kind: FileType::Regular,
                mode: 0o104_755,
                uid: 1000,
                gid: 44,
                size: 2,
                name_len: 4,
                offset: 0x0e51 * 4,
            };
            assert_eq!(Inode::parse(&bytes, order), Ok(expected), "{order:?}");
        }
    }

    #[test]
    fn types() {
        for (bits, expected) in [
            (0o01, Some(FileType::Fifo)),
            (0o02, Some(FileType::CharDevice)),
            (0o04, Some(FileType::Directory)),
            (0o06, Some(FileType::BlockDevice)),
            (0o10, Some(FileType::Regular)),
            (0o12, Some(FileType::Symlink)),
            (0o14, Some(FileType::Socket)),
            (0o00, None),
            (0o03, None),
            (0o17, None),
        ] {
            assert_eq!(kind(bits << 12 | 0o644), expected, "{bits:o}");
        }
        let error = Inode::parse(&[0; 12], ByteOrder::Little);
        assert_eq!(error, Err(Check::Mode { mode: 0 }));
        let error = Inode::parse(&[0; 11], ByteOrder::Little);
        assert_eq!(error, Err(Check::InodeCut { len: 11 }));
    }
}
