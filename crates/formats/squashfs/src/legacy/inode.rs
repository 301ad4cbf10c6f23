//! Inodes of 1.x to 3.x: packed bit fields, fewer in older versions.

use forerun_io::{u16_from, u32_from};
use forerun_vfs::{Device, FileType, NodeId, Result, Timestamp};

use crate::bits::Bits;
use crate::cursor::{Cursor, Table};
use crate::error::Check;
use crate::inode::{Dir, File, Fragment, Inode, InodeBody, MAX_FILE, file_type};
use crate::ondisk::{NONE_32, kind};
use crate::reference::Reference;
use crate::superblock::{Legacy, Superblock, Version};

/// Inode types of 1.x in each group of 16 user ids: the group is part of the type field.
const TYPES: u16 = 5;
/// User ids of a group.
const ROW: u16 = 16;

/// The superblock and position of an inode, for its parser.
pub struct InodePlace<'p> {
    pub superblock: &'p Superblock,
    pub table: &'p Table,
    pub node: NodeId,
}

/// The fields that all inodes of a version have.
struct Head {
    basic: u16,
    is_extended: bool,
    mode: u16,
    uid: u16,
    gid: u16,
    mtime: Option<u32>,
    number: u32,
    nlink: u32,
}

impl Legacy {
    pub fn inode(&self, cursor: &mut Cursor<'_>, place: &InodePlace<'_>) -> Result<Inode> {
        let mut head = self.head(cursor, place)?;
        let Some(file_type) = file_type(head.basic) else {
            let found = head.basic;
            return Err(Check::InodeType { found }.at(Some(place.node), cursor.offset()));
        };
        let body = match file_type {
            FileType::Regular => self.file(cursor, place, &mut head)?,
            FileType::Directory => self.dir(cursor, &mut head)?,
            FileType::Symlink => {
                let [len] = self.fields(cursor, &[16])?;
                let target = cursor.reference();
                InodeBody::Symlink {
                    len: low(len),
                    target,
                }
            }
            FileType::BlockDevice | FileType::CharDevice => {
                let [rdev] = self.fields(cursor, &[16])?;
                InodeBody::Device(Device {
                    major: low(rdev) >> 8,
                    minor: low(rdev) & 0xff,
                })
            }
            FileType::Fifo | FileType::Socket => InodeBody::Ipc,
        };
        let seconds = head.mtime.unwrap_or(place.superblock.mkfs_time);
        let (uid_index, gid_index) = self.ids(&head);
        Ok(Inode {
            file_type,
            is_extended: head.is_extended,
            mode: head.mode,
            uid_index,
            gid_index,
            mtime: Timestamp {
                seconds: i64::from(seconds),
                nanoseconds: 0,
            },
            number: head.number,
            nlink: head.nlink,
            xattrs: None,
            body,
        })
    }

    /// Returns the indexes of user and group in the id lists, users first. The highest group value
    /// means that the group id equals the user id.
    fn ids(&self, head: &Head) -> (u16, u16) {
        let own = if self.version == Version::V1 { 15 } else { 255 };
        let group = if head.gid == own {
            head.uid
        } else {
            self.uids.1 + head.gid
        };
        // An index past the users must not find a group.
        let outside = u16::MAX;
        let uid = if head.uid < self.uids.1 {
            head.uid
        } else {
            outside
        };
        let gid = if head.gid == own { uid } else { group };
        (uid, gid)
    }

    fn head(&self, cursor: &mut Cursor<'_>, place: &InodePlace<'_>) -> Result<Head> {
        let id = if self.version == Version::V1 { 4 } else { 8 };
        let [found, mode, uid, gid] = self.fields(cursor, &[4, 12, id, id])?;
        let found = low16(found);
        let mut head = Head {
            basic: found,
            is_extended: false,
            mode: low16(mode),
            uid: low16(uid),
            gid: low16(gid),
            mtime: None,
            number: 0,
            nlink: 1,
        };
        match self.version {
            Version::V1 if found == 0 => {
                let [kind, row] = self.fields(cursor, &[4, 4])?;
                // These two types have no further fields.
                let is_known = [kind::FIFO, kind::SOCKET].contains(&low16(kind));
                head.basic = if is_known { low16(kind) } else { 0 };
                head.uid += low16(row) * ROW;
            }
            Version::V1 => {
                head.basic = (found - 1) % TYPES + 1;
                head.uid += (found - 1) / TYPES * ROW;
            }
            Version::V2 | Version::V3 => {
                if let 8 | 9 = found {
                    head.basic = found - kind::EXTENDED;
                    head.is_extended = true;
                }
            }
        }
        if self.version == Version::V2 && found == 9 {
            return Err(Check::InodeType { found }.at(Some(place.node), cursor.offset()));
        }
        if self.version == Version::V3 {
            let [mtime, number] = self.fields(cursor, &[32, 32])?;
            (head.mtime, head.number) = (Some(low(mtime)), low(number));
            if head.basic != kind::REG || head.is_extended {
                let [nlink] = self.fields(cursor, &[32])?;
                head.nlink = low(nlink);
            }
        }
        Ok(head)
    }

    fn file(
        &self,
        cursor: &mut Cursor<'_>,
        place: &InodePlace<'_>,
        head: &mut Head,
    ) -> Result<InodeBody> {
        let mut fragment = (u64::from(NONE_32), 0);
        let (start, size);
        match self.version {
            Version::V1 => {
                let [mtime, at, len] = self.fields(cursor, &[32, 32, 32])?;
                (head.mtime, start, size) = (Some(low(mtime)), at, len);
            }
            Version::V2 => {
                let [mtime, at, index, offset, len] = self.fields(cursor, &[32; 5])?;
                (head.mtime, start, size) = (Some(low(mtime)), at, len);
                fragment = (index, offset);
            }
            Version::V3 => {
                let width = if head.is_extended { 64 } else { 32 };
                let [at, index, offset, len] = self.fields(cursor, &[64, 32, 32, width])?;
                (start, size) = (at, len);
                fragment = (index, offset);
            }
        }
        self.file_body(cursor, place, size, start, fragment)
    }

    fn file_body(
        &self,
        cursor: &Cursor<'_>,
        place: &InodePlace<'_>,
        size: u64,
        start: u64,
        (index, offset): (u64, u64),
    ) -> Result<InodeBody> {
        let fail = |check: Check| Err(check.at(Some(place.node), cursor.offset()));
        if size > MAX_FILE {
            return fail(Check::HugeFile { size });
        }
        let block_size = u64::from(place.superblock.block_size);
        let is_tail = low(index) != NONE_32 && !size.is_multiple_of(block_size);
        let fragment = is_tail.then(|| Fragment {
            index: low(index),
            offset: low(offset),
        });
        let blocks = match fragment {
            Some(_) => size / block_size,
            None => size.div_ceil(block_size),
        };
        let room = place.table.max_decoded() / self.block_word_len();
        if blocks > room {
            return fail(Check::FileSize {
                size,
                block_size: place.superblock.block_size,
                blocks,
                room,
            });
        }
        Ok(InodeBody::File(File {
            size,
            start,
            blocks,
            fragment,
            sizes: cursor.reference(),
            sparse: 0,
        }))
    }

    fn dir(&self, cursor: &mut Cursor<'_>, head: &mut Head) -> Result<InodeBody> {
        let width = if head.is_extended { 27 } else { 19 };
        let (size, offset, block, parent, indexes);
        match (self.version, head.is_extended) {
            (Version::V3, false) => {
                [size, offset, block, parent] = self.fields(cursor, &[width, 13, 32, 32])?;
                indexes = 0;
            }
            (Version::V3, true) => {
                [size, offset, block, indexes, parent] =
                    self.fields(cursor, &[width, 13, 32, 16, 32])?;
            }
            (Version::V1 | Version::V2, is_extended) => {
                let count = if is_extended { 16 } else { 0 };
                let mtime;
                [size, offset, mtime, block, indexes] =
                    self.fields(cursor, &[width, 13, 32, 24, count])?;
                (head.mtime, parent) = (Some(low(mtime)), 0);
            }
        }
        let size = low(size);
        // Only 3.x stores three more than the listing's length.
        let size = match self.version {
            Version::V1 | Version::V2 => size + 3,
            Version::V3 => size.max(3),
        };
        Ok(InodeBody::Dir(Dir {
            size,
            start: Reference::new(low(block), low16(offset)),
            parent: low(parent),
            indexes: low16(indexes),
            index_at: cursor.reference(),
        }))
    }

    /// Reads bit fields of these widths, which together are whole bytes, at most 32.
    fn fields<const N: usize>(
        &self,
        cursor: &mut Cursor<'_>,
        widths: &[usize; N],
    ) -> Result<[u64; N]> {
        let mut bytes = [0; 32];
        let len = widths.iter().sum::<usize>() / 8;
        let bytes = &mut bytes[..len];
        cursor.read_into(bytes)?;
        let mut bits = Bits::new(bytes, self.order);
        Ok(widths.map(|width| bits.u64(width)))
    }
}

/// Converts a field of at most 32 bits.
fn low(field: u64) -> u32 {
    u32_from(field)
}

/// Converts a field of at most 16 bits.
fn low16(field: u64) -> u16 {
    u16_from(field)
}
