//! Directories: blocks of sorted names, found by binary search.
//!
//! A block holds its entries first, then their names. A name ends where the next one begins; the
//! last name ends with the block or before its first NUL.

use std::ops::ControlFlow;

use forerun_io::{u64_from, usize_from};
use forerun_vfs::{DirCursor, DirEntry, Error, FileType, NodeId, PassedOver, Result, check_name};
use zerocopy::FromBytes;

use crate::error::Check;
use crate::image::{Image, data};
use crate::inode::Inode;
use crate::ondisk::Dirent;

const ENTRY: usize = size_of::<Dirent>();

/// Low bits of a cursor, which hold the position in a block: a block has fewer than 2^16 entries.
const CURSOR_BITS: u32 = 16;

#[derive(Clone, Copy, Debug)]
pub struct ListingEntry<'b> {
    pub name: &'b [u8],
    pub nid: u64,
    /// As stored; [`kind`] converts it.
    pub file_type: u8,
}

pub struct Dir<'i> {
    image: &'i Image,
    inode: Inode,
}

pub struct Block<'d> {
    dir: &'d Dir<'d>,
    bytes: Vec<u8>,
    count: usize,
}

pub fn lookup(image: &Image, node: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
    let dir = Dir::open(image, node)?;
    if check_name(name, image.limits.name_len).is_err() {
        return Ok(None);
    }
    // Find the last block whose first name is not greater than `name`.
    let (mut low, mut high) = (0, dir.blocks());
    let mut candidate = None;
    while low < high {
        let middle = low + (high - low) / 2;
        let block = dir.block(middle)?;
        let first = block.raw(0)?.name;
        if first <= name {
            low = middle + 1;
            candidate = Some(block);
        } else {
            high = middle;
        }
    }
    match candidate {
        Some(block) => block.find(name),
        None => Ok(None),
    }
}

/// Visits the entries after `from`. Skips bad entries, and returns the first one's error at the
/// end.
pub fn read(
    image: &Image,
    node: NodeId,
    from: DirCursor,
    visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let dir = Dir::open(image, node)?;
    each(&dir, from, &mut |entry, next| {
        if matches!(entry.name, b"." | b"..") {
            return Ok(ControlFlow::Continue(()));
        }
        let node = NodeId(entry.nid);
        let kind = match kind(entry.file_type) {
            Some(kind) => kind,
            // Type 0: only the inode records the file type.
            None => image.inode(node)?.file_type,
        };
        Ok(visit(DirEntry {
            name: entry.name,
            node,
            kind,
            next,
        }))
    })
}

/// Visits the entries after `from` as stored, including `.` and `..`, and checks them. Skips bad
/// blocks and entries, also entries for which `visit` returns an error, and returns the first error
/// at the end.
pub fn each(
    dir: &Dir<'_>,
    from: DirCursor,
    visit: &mut dyn FnMut(ListingEntry<'_>, DirCursor) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let mut index = from.0 >> CURSOR_BITS;
    let mut first = usize_from(from.0 & ((1 << CURSOR_BITS) - 1));
    let mut before = Vec::new();
    let mut bad = PassedOver::default();
    while index < dir.blocks() {
        let block = match dir.block(index) {
            Ok(block) => block,
            Err(error) => {
                bad.add(error)?;
                (index, first) = (index + 1, 0);
                continue;
            }
        };
        // Entries before `first` were visited already; only their names are needed, to check the
        // order.
        for position in 0..block.count {
            let next = DirCursor(index << CURSOR_BITS | u64_from(position + 1));
            let visited = block.entry(position).and_then(|entry| {
                block.in_order(&before, entry.name)?;
                before.clear();
                before.extend_from_slice(entry.name);
                if position < first {
                    return Ok(ControlFlow::Continue(()));
                }
                visit(entry, next)
            });
            match visited {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(error) => bad.add(error)?,
            }
        }
        (index, first) = (index + 1, 0);
    }
    bad.end()
}

impl<'i> Dir<'i> {
    pub fn open(image: &'i Image, node: NodeId) -> Result<Self> {
        let inode = image.inode(node)?;
        match inode.file_type {
            FileType::Directory => Ok(Self { image, inode }),
            _ => Err(Error::NotADirectory),
        }
    }

    pub const fn inode(&self) -> &Inode {
        &self.inode
    }

    fn blocks(&self) -> u64 {
        self.inode.size.div_ceil(self.image.superblock.block_size())
    }

    fn block(&self, index: u64) -> Result<Block<'_>> {
        let block_size = self.image.superblock.block_size();
        let start = index * block_size;
        let len = (self.inode.size - start).min(block_size);
        // At most a block.
        let mut bytes = vec![0; usize_from(len)];
        data::read(self.image, &self.inode, start, &mut bytes)?;
        let mut block = Block {
            dir: self,
            bytes,
            count: 0,
        };
        let len = block.bytes.len();
        let first = Dirent::read_from_prefix(&block.bytes);
        let nameoff = first.map_or(0, |(first, _)| first.nameoff.get());
        let names = usize::from(nameoff);
        if names < ENTRY || !names.is_multiple_of(ENTRY) || names >= len {
            return block.fail(Check::FirstName { nameoff, len });
        }
        block.count = names / ENTRY;
        Ok(block)
    }
}

impl Block<'_> {
    fn fail<T>(&self, check: Check) -> Result<T> {
        let inode = &self.dir.inode;
        // Report the inode's offset: a compressed block has no offset of its own.
        Err(check.at(Some(inode.node), inode.at.offset))
    }

    fn head(&self, index: usize) -> Option<Dirent> {
        let bytes = self.bytes.get(index * ENTRY..)?;
        Some(Dirent::read_from_prefix(bytes).ok()?.0)
    }

    /// Parses an entry without checking its name.
    fn raw(&self, index: usize) -> Result<ListingEntry<'_>> {
        let len = self.bytes.len();
        let Some(head) = self.head(index).filter(|_| index < self.count) else {
            let (start, end) = (index * ENTRY, (index + 1) * ENTRY);
            return self.fail(Check::NameRange {
                index,
                start,
                end,
                len,
            });
        };
        let start = usize::from(head.nameoff.get());
        let is_last = index + 1 == self.count;
        let end = match self.head(index + 1).filter(|_| !is_last) {
            Some(next) => usize::from(next.nameoff.get()),
            None => len,
        };
        let name = self.bytes.get(start..end);
        let Some(mut name) = name.filter(|_| start >= self.count * ENTRY && start < end) else {
            return self.fail(Check::NameRange {
                index,
                start,
                end,
                len,
            });
        };
        if is_last && let Some(len) = name.iter().position(|&byte| byte == 0) {
            name = name.get(..len).unwrap_or_default();
        }
        Ok(ListingEntry {
            name,
            nid: head.nid.get(),
            file_type: head.file_type,
        })
    }

    /// Parses an entry and checks its name, type and node.
    fn entry(&self, index: usize) -> Result<ListingEntry<'_>> {
        let entry = self.raw(index)?;
        let is_dots = matches!(entry.name, b"." | b"..");
        if !is_dots && let Err(source) = check_name(entry.name, self.dir.image.limits.name_len) {
            let name = text(entry.name);
            return self.fail(Check::Name { name, source });
        }
        if entry.file_type > 0 && kind(entry.file_type).is_none() {
            let (name, found) = (text(entry.name), entry.file_type);
            return self.fail(Check::EntryType { name, found });
        }
        let nid = entry.nid;
        if self.dir.image.address(NodeId(nid)).is_err() {
            let name = text(entry.name);
            return self.fail(Check::EntryNode { name, nid });
        }
        Ok(entry)
    }

    fn in_order(&self, before: &[u8], name: &[u8]) -> Result<()> {
        if before.is_empty() || before < name {
            return Ok(());
        }
        let (name, before) = (text(name), text(before));
        self.fail(Check::NameOrder { name, before })
    }

    fn find(&self, name: &[u8]) -> Result<Option<NodeId>> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.raw(middle)?.name.cmp(name) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    let entry = self.entry(middle)?;
                    return Ok(Some(NodeId(entry.nid)));
                }
            }
        }
        Ok(None)
    }
}

/// Returns the file type of a directory entry, or `None` for 0, which leaves the type to the inode.
pub const fn kind(file_type: u8) -> Option<FileType> {
    Some(match file_type {
        1 => FileType::Regular,
        2 => FileType::Directory,
        3 => FileType::CharDevice,
        4 => FileType::BlockDevice,
        5 => FileType::Fifo,
        6 => FileType::Socket,
        7 => FileType::Symlink,
        _ => return None,
    })
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
