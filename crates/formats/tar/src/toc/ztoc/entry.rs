//! Converts an entry of a zTOC to a member of the archive.

use forerun_vfs::{Device, FileType};

use super::flat::{BadFlat, FlatList, FlatTable};
use crate::error::lossy;
use crate::header::BLOCK;
use crate::parser::{Kind, Member};
use crate::pax::Records;
use crate::toc::entry::time;
use crate::toc::error::EntryCheck;
use forerun_io::{u16_from, u64_from};

/// Memory of an entry in addition to its strings.
const FIXED: usize = 64;

/// The table `FileMetadata`.
pub struct ZtocEntry<'b> {
    pub name: &'b [u8],
    kind: &'b [u8],
    offset: i64,
    size: i64,
    link: &'b [u8],
    mode: i64,
    uid: u32,
    gid: u32,
    modified: &'b [u8],
    major: i64,
    minor: i64,
    /// All records of the extended header.
    records: FlatList<'b>,
}

/// The reason why an entry describes no member.
pub enum EntryError {
    Flat(BadFlat),
    Check(EntryCheck),
}

impl From<BadFlat> for EntryError {
    fn from(error: BadFlat) -> Self {
        Self::Flat(error)
    }
}

impl From<EntryCheck> for EntryError {
    fn from(check: EntryCheck) -> Self {
        Self::Check(check)
    }
}

impl<'b> ZtocEntry<'b> {
    pub fn read(table: &FlatTable<'b>) -> Result<Self, BadFlat> {
        Ok(Self {
            name: table.bytes(0)?,
            kind: table.bytes(1)?,
            offset: table.i64(2)?,
            size: table.i64(3)?,
            link: table.bytes(4)?,
            mode: table.i64(5)?,
            uid: table.u32(6)?,
            gid: table.u32(7)?,
            modified: table.bytes(10)?,
            major: table.i64(11)?,
            minor: table.i64(12)?,
            records: table.list(13)?,
        })
    }

    /// Returns the approximate memory of the entry's strings.
    pub fn held(&self) -> usize {
        self.name.len() + self.link.len() + (self.records.len() + 1) * FIXED
    }

    /// Returns whether the archive has a sparse map for the file, which the table lacks.
    pub fn is_sparse(&self) -> Result<bool, BadFlat> {
        for record in self.records.tables() {
            if record?.bytes(0)?.starts_with(b"GNU.sparse.") {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the member that the entry describes.
    pub fn member(self) -> Result<Member, EntryError> {
        let kind = self.kind()?;
        let is_device = matches!(
            kind,
            Kind::Node(FileType::CharDevice | FileType::BlockDevice)
        );
        let device = if is_device {
            Device {
                major: narrow("devmajor", self.major)?,
                minor: narrow("devminor", self.minor)?,
            }
        } else {
            Device::default()
        };
        let size = match kind {
            Kind::Node(FileType::Regular) => narrow("uncompressed_size", self.size)?,
            // Programs disagree about the size field of members without data.
            Kind::Node(_) | Kind::HardLink => 0,
        };
        let data: u64 = narrow("uncompressed_offset", self.offset)?;
        // Neither number has more than 63 bits.
        let end = data + size;
        let header = data.checked_sub(u64_from(BLOCK));
        let header = header.ok_or(EntryCheck::Place { offset: data, end })?;
        let modified = str::from_utf8(self.modified).unwrap_or("not UTF-8");
        let mut records = self.attributes()?;
        Ok(Member {
            // The header is directly before the data, after any extended headers.
            header,
            kind,
            mode: u16_from((self.mode & 0o7777).cast_unsigned()),
            uid: self.uid,
            gid: self.gid,
            mtime: time(modified)?,
            device,
            size,
            data,
            pieces: None,
            left_out: None,
            odd: records.take_odd(self.name),
            xattrs: records.xattrs,
            end,
            path: self.name.to_vec(),
            link: self.link.to_vec(),
        })
    }

    fn kind(&self) -> Result<Kind, EntryCheck> {
        Ok(Kind::Node(match self.kind {
            b"hardlink" => return Ok(Kind::HardLink),
            b"dir" => FileType::Directory,
            b"reg" => FileType::Regular,
            b"symlink" => FileType::Symlink,
            b"char" => FileType::CharDevice,
            b"block" => FileType::BlockDevice,
            b"fifo" => FileType::Fifo,
            other => return Err(EntryCheck::Kind(lossy(other))),
        }))
    }

    /// Returns the extended attributes. The entry has fields for the other records.
    fn attributes(&self) -> Result<Records, EntryError> {
        let mut records = Records::default();
        for record in self.records.tables() {
            let record = record?;
            let set = records.set(record.bytes(0)?, record.bytes(1)?);
            set.map_err(|check| EntryCheck::Record(check.to_string()))?;
        }
        Ok(records)
    }
}

fn narrow<T: TryFrom<i64>>(field: &'static str, value: i64) -> Result<T, EntryCheck> {
    T::try_from(value).map_err(|_| EntryCheck::Range {
        field,
        value: value.to_string(),
    })
}
