//! From the bytes of a file header to what they say.

use forerun_io::{saturating_usize, u64_from};
use forerun_vfs::{Device, FileType, NodeId, Result, check_name};
use zerocopy::FromBytes;

use crate::error::Check;
use crate::ondisk::{self, ALIGN, EXECUTABLE, HEADER_LEN, OFFSET_MASK, TYPE_MASK};

/// What a header stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Another name for the file whose header is at `target`.
    HardLink {
        target: u64,
    },
    /// A directory whose first entry is at `first`, 0 for none.
    Directory {
        first: u64,
    },
    Regular,
    Symlink,
    BlockDevice(Device),
    CharDevice(Device),
    Socket,
    Fifo,
}

/// A header that passed the checks that reading it safely takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub offset: u64,
    pub kind: Kind,
    pub executable: bool,
    /// Offset of the next header of the same directory.
    pub next: Option<u64>,
    pub spec_info: u32,
    pub size: u32,
    pub checksum: u32,
    pub name: Vec<u8>,
    /// Offset of the data.
    pub data: u64,
    /// Sum of the words of header and name; 0 where the checksum is right.
    pub sum: u32,
}

/// Bytes to read for a header whose name has at most `name_limit` bytes.
pub fn read_len(name_limit: usize) -> u64 {
    HEADER_LEN + (u64_from(name_limit) + 1).next_multiple_of(ALIGN)
}

impl Header {
    /// `bytes` are those from `offset` on, [`read_len`] of them or all that the image has.
    ///
    /// # Errors
    /// `Corrupt` at `offset`.
    pub fn parse(bytes: &[u8], offset: u64, full_size: u64, name_limit: usize) -> Result<Self> {
        let fail = |check: Check| check.at(Some(NodeId(offset)), offset);
        if !offset.is_multiple_of(ALIGN) {
            return Err(fail(Check::HeaderUnaligned));
        }
        let outside = |_| fail(Check::HeaderOutside { full_size });
        let (raw, rest) = ondisk::FileHeader::read_from_prefix(bytes).map_err(outside)?;
        let name_len = rest
            .iter()
            .take(name_limit.saturating_add(1))
            .position(|&byte| byte == 0);
        let name_len = name_len.ok_or_else(|| fail(Check::NameEndless { limit: name_limit }))?;
        let name = rest.get(..name_len).unwrap_or_default().to_vec();
        let padded = (u64_from(name_len) + 1).next_multiple_of(ALIGN);
        let data = offset + HEADER_LEN + padded;
        let summed = bytes
            .get(..saturating_usize(HEADER_LEN + padded))
            .unwrap_or(bytes);
        let spec_info = raw.spec_info.get();
        let header = Self {
            offset,
            kind: kind(raw.next.get(), spec_info),
            executable: raw.next.get() & EXECUTABLE != 0,
            next: Some(u64::from(raw.next.get() & OFFSET_MASK)).filter(|&next| next != 0),
            spec_info,
            size: raw.size.get(),
            checksum: raw.checksum.get(),
            name,
            data,
            sum: ondisk::checksum(summed),
        };
        if matches!(header.kind, Kind::Regular | Kind::Symlink) {
            let size = u64::from(header.size);
            if data > full_size || size > full_size - data {
                return Err(fail(Check::DataOutside {
                    data,
                    size,
                    full_size,
                }));
            }
        }
        Ok(header)
    }

    /// Whether this is one of the two entries that stand for a directory itself and its parent.
    pub fn is_dot(&self) -> bool {
        self.name == b"." || self.name == b".."
    }

    /// Holds the name against the rules for entries.
    pub fn check_name(&self, name_limit: usize) -> Result<()> {
        check_name(&self.name, name_limit).map_err(|source| {
            let name = String::from_utf8_lossy(&self.name).into_owned();
            Check::Name { name, source }.at(Some(NodeId(self.offset)), self.offset)
        })
    }

    /// The type of the file; a hard link has none of its own.
    pub const fn file_type(&self) -> Option<FileType> {
        match self.kind {
            Kind::HardLink { .. } => None,
            Kind::Directory { .. } => Some(FileType::Directory),
            Kind::Regular => Some(FileType::Regular),
            Kind::Symlink => Some(FileType::Symlink),
            Kind::BlockDevice(_) => Some(FileType::BlockDevice),
            Kind::CharDevice(_) => Some(FileType::CharDevice),
            Kind::Socket => Some(FileType::Socket),
            Kind::Fifo => Some(FileType::Fifo),
        }
    }

    /// What reading does not need but the format demands.
    pub fn deviations(&self) -> Vec<Check> {
        let mut found = Vec::new();
        if self.sum != 0 {
            found.push(Check::HeaderChecksum { sum: self.sum });
        }
        let unused_info = matches!(
            self.kind,
            Kind::Regular | Kind::Symlink | Kind::Socket | Kind::Fifo
        );
        if unused_info && self.spec_info != 0 {
            found.push(Check::SpecInfo {
                found: self.spec_info,
            });
        }
        if !matches!(self.kind, Kind::Regular | Kind::Symlink) && self.size != 0 {
            found.push(Check::Size { found: self.size });
        }
        found
    }
}

fn kind(next: u32, spec_info: u32) -> Kind {
    let offset = u64::from(spec_info & OFFSET_MASK);
    let device = Device {
        major: spec_info >> 16,
        minor: spec_info & 0xFFFF,
    };
    match next & TYPE_MASK {
        0 => Kind::HardLink { target: offset },
        1 => Kind::Directory { first: offset },
        2 => Kind::Regular,
        3 => Kind::Symlink,
        4 => Kind::BlockDevice(device),
        5 => Kind::CharDevice(device),
        6 => Kind::Socket,
        _ => Kind::Fifo,
    }
}
