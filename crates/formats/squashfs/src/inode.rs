//! Parses and validates inodes.

use forerun_vfs::{Device, FileType, NodeId, Result, Timestamp};

use crate::cursor::{Cursor, Table};
use crate::error::Check;
use crate::ondisk::{
    BasicDir, BasicFile, DeviceNode, ExtendedDir, ExtendedFile, InodeHeader, Ipc, NONE_32, Symlink,
    kind,
};
use crate::reference::Reference;

/// Larger files are rejected, so that sums of offsets in them cannot overflow.
pub const MAX_FILE: u64 = 1 << 62;

/// An inode. Owner and group are still indexes into the id table.
#[derive(Clone, Debug)]
pub struct Inode {
    pub file_type: FileType,
    pub is_extended: bool,
    pub mode: u16,
    pub uid_index: u16,
    pub gid_index: u16,
    pub mtime: Timestamp,
    pub number: u32,
    pub nlink: u32,
    pub xattrs: Option<u32>,
    pub body: InodeBody,
}

#[derive(Clone, Debug)]
pub enum InodeBody {
    File(File),
    Dir(Dir),
    Symlink { len: u32, target: Reference },
    Device(Device),
    Ipc,
}

#[derive(Clone, Debug)]
pub struct File {
    pub size: u64,
    /// Image offset of the first stored block.
    pub start: u64,
    /// Number of blocks with a size of their own; the rest of the file is in the fragment.
    pub blocks: u64,
    pub fragment: Option<Fragment>,
    /// Position of the block sizes.
    pub sizes: Reference,
    /// Declared bytes of holes; 0 if the inode does not have the field.
    pub sparse: u64,
}

/// The end of a file in a block that it shares with other files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    pub index: u32,
    pub offset: u32,
}

#[derive(Clone, Debug)]
pub struct Dir {
    /// As `stat` reports it: three more than the listing's length.
    pub size: u32,
    pub start: Reference,
    pub parent: u32,
    pub indexes: u16,
    /// Position of the directory indexes.
    pub index_at: Reference,
}

impl Dir {
    /// Returns the length of the listing in bytes.
    pub const fn len(&self) -> u32 {
        self.size.saturating_sub(3)
    }
}

impl Inode {
    /// Reads the inode at the cursor, which must be in `table`.
    pub fn read(
        cursor: &mut Cursor<'_>,
        table: &Table,
        node: NodeId,
        block_size: u32,
    ) -> Result<Self> {
        let header: InodeHeader = cursor.read()?;
        let fail = |cursor: &Cursor<'_>, check: Check| Err(check.at(Some(node), cursor.offset()));
        let found = header.inode_type.get();
        let (basic, is_extended) = match found {
            1..=7 => (found, false),
            8..=14 => (found - kind::EXTENDED, true),
            _ => return fail(cursor, Check::InodeType { found }),
        };
        let Some(file_type) = file_type(basic) else {
            return fail(cursor, Check::InodeType { found });
        };
        let parser = Parser {
            table,
            node,
            block_size,
            is_extended,
        };
        let (nlink, xattrs, body) = match file_type {
            FileType::Regular => parser.file(cursor)?,
            FileType::Directory => parser.dir(cursor)?,
            FileType::Symlink => parser.symlink(cursor)?,
            FileType::BlockDevice | FileType::CharDevice => {
                let raw: DeviceNode = cursor.read()?;
                let body = InodeBody::Device(Device::unpack(raw.rdev.get()));
                (raw.nlink.get(), parser.xattr(cursor)?, body)
            }
            FileType::Fifo | FileType::Socket => {
                let raw: Ipc = cursor.read()?;
                (raw.nlink.get(), parser.xattr(cursor)?, InodeBody::Ipc)
            }
        };
        Ok(Self {
            file_type,
            is_extended,
            mode: header.mode.get() & 0o7777,
            uid_index: header.uid.get(),
            gid_index: header.guid.get(),
            mtime: Timestamp {
                seconds: i64::from(header.mtime.get()),
                nanoseconds: 0,
            },
            number: header.inode_number.get(),
            nlink,
            xattrs: xattrs.filter(|&index| index != NONE_32),
            body,
        })
    }
}

type Parsed = (u32, Option<u32>, InodeBody);

struct Parser<'t> {
    table: &'t Table,
    node: NodeId,
    block_size: u32,
    is_extended: bool,
}

impl Parser<'_> {
    fn file(&self, cursor: &mut Cursor<'_>) -> Result<Parsed> {
        let (nlink, xattrs, size, start, fragment, offset, sparse) = if self.is_extended {
            let raw: ExtendedFile = cursor.read()?;
            (
                raw.nlink.get(),
                Some(raw.xattr.get()),
                raw.file_size.get(),
                raw.start_block.get(),
                raw.fragment.get(),
                raw.offset.get(),
                raw.sparse.get(),
            )
        } else {
            let raw: BasicFile = cursor.read()?;
            (
                1,
                None,
                u64::from(raw.file_size.get()),
                u64::from(raw.start_block.get()),
                raw.fragment.get(),
                raw.offset.get(),
                0,
            )
        };
        let fail = |check: Check| Err(check.at(Some(self.node), cursor.offset()));
        if size > MAX_FILE {
            return fail(Check::HugeFile { size });
        }
        let block_size = u64::from(self.block_size);
        let index = (fragment != NONE_32 && size % block_size != 0).then_some(fragment);
        let fragment = index.map(|index| Fragment { index, offset });
        let blocks = match fragment {
            Some(_) => size / block_size,
            None => size.div_ceil(block_size),
        };
        // Upper bound on the block sizes that the rest of the table can hold.
        let room = self.table.max_decoded() / 4;
        if blocks > room {
            return fail(Check::FileSize {
                size,
                block_size: self.block_size,
                blocks,
                room,
            });
        }
        let file = File {
            size,
            start,
            blocks,
            fragment,
            sizes: cursor.reference(),
            sparse,
        };
        Ok((nlink, xattrs, InodeBody::File(file)))
    }

    fn dir(&self, cursor: &mut Cursor<'_>) -> Result<Parsed> {
        let (nlink, xattrs, size, block, offset, parent, indexes) = if self.is_extended {
            let raw: ExtendedDir = cursor.read()?;
            (
                raw.nlink.get(),
                Some(raw.xattr.get()),
                raw.file_size.get(),
                raw.start_block.get(),
                raw.offset.get(),
                raw.parent_inode.get(),
                raw.i_count.get(),
            )
        } else {
            let raw: BasicDir = cursor.read()?;
            (
                raw.nlink.get(),
                None,
                u32::from(raw.file_size.get()),
                raw.start_block.get(),
                raw.offset.get(),
                raw.parent_inode.get(),
                0,
            )
        };
        if size < 3 {
            return Err(Check::ListingSize { size }.at(Some(self.node), cursor.offset()));
        }
        let dir = Dir {
            size,
            start: Reference::new(block, offset),
            parent,
            indexes,
            index_at: cursor.reference(),
        };
        Ok((nlink, xattrs, InodeBody::Dir(dir)))
    }

    fn symlink(&self, cursor: &mut Cursor<'_>) -> Result<Parsed> {
        let raw: Symlink = cursor.read()?;
        let (len, target) = (raw.symlink_size.get(), cursor.reference());
        // Do not decode the blocks of longer targets; reading them fails anyway.
        let xattrs = if self.is_extended && len <= 65536 {
            cursor.skip(u64::from(len))?;
            self.xattr(cursor)?
        } else {
            None
        };
        Ok((raw.nlink.get(), xattrs, InodeBody::Symlink { len, target }))
    }

    fn xattr(&self, cursor: &mut Cursor<'_>) -> Result<Option<u32>> {
        if !self.is_extended {
            return Ok(None);
        }
        let index: zerocopy::little_endian::U32 = cursor.read()?;
        Ok(Some(index.get()))
    }
}

/// Returns the file type of a basic inode type.
pub const fn file_type(basic: u16) -> Option<FileType> {
    Some(match basic {
        kind::DIR => FileType::Directory,
        kind::REG => FileType::Regular,
        kind::SYMLINK => FileType::Symlink,
        kind::BLKDEV => FileType::BlockDevice,
        kind::CHRDEV => FileType::CharDevice,
        kind::FIFO => FileType::Fifo,
        kind::SOCKET => FileType::Socket,
        _ => return None,
    })
}
