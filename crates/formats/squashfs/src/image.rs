//! An open image: superblock, tables and caches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use forerun_io::{Limits, Unpoisoned, u64_from};
use forerun_vfs::{Error, NodeId, OpenWith, OwnContents, Result};
use zerocopy::little_endian::{U32, U64};

use crate::blocks::{Blocks, Frame};
use crate::cursor::{Cursor, Table};
use crate::error::Check;
use crate::ids::IdTable;
use crate::inode::{Dir, File, Inode, InodeBody};
use crate::landmarks::Directories;
use crate::legacy::InodePlace;
use crate::ondisk::{
    BLOCK_STORED, DirEntry, DirHeader, DirIndex, FragmentEntry, METADATA_BLOCK, WRONG_HOLE,
};
use crate::positions::Positions;
use crate::reference::Reference;
use crate::superblock::{Legacy, Superblock};
use crate::tables::{Indexed, indexed};
use crate::xattr_tables::XattrTables;

pub struct Image {
    pub superblock: Superblock,
    pub limits: Limits,
    pub blocks: Blocks,
    pub inodes: Table,
    pub directories: Table,
    pub fragments: Option<Indexed>,
    pub export: Option<Indexed>,
    /// `None` if a salvage found no id table.
    pub ids: Option<IdTable>,
    pub xattrs: Option<XattrTables>,
    pub positions: Positions,
    pub looked_up: Directories,
    /// By xattr set.
    pub own_contents: OwnContents,
    /// `None` unless the image was opened for a salvage.
    pub salvage: Option<Substitutes>,
}

/// Values that a salvage uses in place of damaged tables.
pub struct Substitutes {
    /// The owner of nodes whose uid cannot be read.
    pub uid: u32,
    pub gid: u32,
    /// Fragments whose blocks were found without the fragment table.
    pub fragments: HashMap<u32, FragmentEntry>,
    /// The last file examined, and whether its blocks with
    /// [`WRONG_HOLE`](crate::ondisk::WRONG_HOLE) are holes.
    pub holes: Mutex<Option<(NodeId, bool)>>,
}

impl Image {
    /// Opens the tables of the image. `damaged` decides what happens to a table that cannot be
    /// opened.
    pub fn assemble(
        with: OpenWith,
        superblock: Superblock,
        damaged: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Self> {
        let observer = Arc::clone(&with.observer);
        let frame = Frame::of(&superblock);
        let blocks = Blocks::new(with.metadata, superblock.codec, frame, with.cache, observer);
        let fragments = u64::from(superblock.fragments);
        let fragment_len = superblock.legacy.as_ref().map_or(16, Legacy::fragment_len);
        let fragments = superblock
            .fragment_table
            .filter(|_| fragments > 0)
            .map(|start| {
                indexed(
                    &superblock,
                    "fragment table",
                    start,
                    fragments,
                    fragment_len,
                )
            });
        let fragments = opened(fragments, damaged)?;
        let inodes = u64::from(superblock.inodes);
        let export = superblock
            .export_table
            .map(|start| indexed(&superblock, "export table", start, inodes, 8));
        let export = opened(export, damaged)?;
        let ids = opened(Some(IdTable::open(&blocks, &superblock)), damaged)?;
        let xattrs = superblock
            .xattr_table
            .map(|start| XattrTables::open(&blocks, &superblock, start));
        let xattrs = opened(xattrs, damaged)?;
        Ok(Self {
            inodes: Table {
                name: "inode table",
                start: superblock.inode_table,
                end: superblock.directory_table,
            },
            directories: Table {
                name: "directory table",
                start: superblock.directory_table,
                end: superblock.end_of_directories(),
            },
            superblock,
            looked_up: Directories::new(with.limits.dir_index_bytes),
            limits: with.limits,
            blocks,
            fragments,
            export,
            ids,
            xattrs,
            positions: Positions::new(),
            own_contents: OwnContents::default(),
            salvage: None,
        })
    }

    pub fn inode(&self, node: NodeId) -> Result<Inode> {
        let reference = Reference::from_raw(node.0);
        if reference.block() >= self.inodes.len() || reference.offset() >= METADATA_BLOCK {
            return Err(Error::StaleNode(node));
        }
        let mut cursor = self.inodes_at(reference, node)?;
        match &self.superblock.legacy {
            None => Inode::read(&mut cursor, &self.inodes, node, self.superblock.block_size),
            Some(legacy) => {
                let place = InodePlace {
                    superblock: &self.superblock,
                    table: &self.inodes,
                    node,
                };
                legacy.inode(&mut cursor, &place)
            }
        }
    }

    /// Reads an inode that must be a regular file.
    pub fn file(&self, node: NodeId) -> Result<File> {
        match self.inode(node)?.body {
            InodeBody::File(file) => Ok(file),
            InodeBody::Dir(_) => Err(Error::IsADirectory),
            _ => Err(Error::NotAFile),
        }
    }

    /// Reads an inode that must be a directory.
    pub fn dir(&self, node: NodeId) -> Result<Dir> {
        match self.inode(node)?.body {
            InodeBody::Dir(dir) => Ok(dir),
            _ => Err(Error::NotADirectory),
        }
    }

    pub fn inodes_at(&self, reference: Reference, node: NodeId) -> Result<Cursor<'_>> {
        Cursor::new(&self.blocks, self.inodes, reference, Some(node))
    }

    pub fn directories_at(&self, reference: Reference, node: NodeId) -> Result<Cursor<'_>> {
        Cursor::new(&self.blocks, self.directories, reference, Some(node))
    }

    /// Returns the owner and group for two indexes into the id table. A salvage replaces unreadable
    /// ids by those in its options.
    pub fn owners(&self, uid: u16, gid: u16, node: NodeId) -> Result<(u32, u32)> {
        let known = |index, instead: fn(&Substitutes) -> u32| match &self.salvage {
            None => self.id(index, node),
            Some(salvage) => Ok(self.id(index, node).unwrap_or_else(|_| instead(salvage))),
        };
        Ok((known(uid, |s| s.uid)?, known(gid, |s| s.gid)?))
    }

    pub fn id(&self, index: u16, node: NodeId) -> Result<u32> {
        match &self.ids {
            Some(ids) => ids.get(&self.blocks, index, node),
            None => Err(no_entry("id table", index.into(), node)),
        }
    }

    /// Returns a fragment table entry, or the one that a salvage found in its place.
    pub fn fragment(&self, index: u32, node: NodeId) -> Result<FragmentEntry> {
        let found = self.salvage.as_ref();
        if let Some(entry) = found.and_then(|salvage| salvage.fragments.get(&index)) {
            return Ok(*entry);
        }
        let index = u64::from(index);
        match (&self.fragments, &self.superblock.legacy) {
            (Some(table), None) => table.get(&self.blocks, index, Some(node)),
            (Some(table), Some(legacy)) if legacy.fragment_len() == 8 => {
                let bytes: [u8; 8] = table.get(&self.blocks, index, Some(node))?;
                Ok(legacy.fragment(&bytes))
            }
            (Some(table), Some(legacy)) => {
                let bytes: [u8; 16] = table.get(&self.blocks, index, Some(node))?;
                Ok(legacy.fragment(&bytes))
            }
            (None, _) => Err(no_entry("fragment table", index, node)),
        }
    }

    /// Returns the reference of an inode from the export table, or `None` if the image has no
    /// export table.
    pub fn exported(&self, number: u32, node: NodeId) -> Result<Option<Reference>> {
        let Some(table) = &self.export else {
            return Ok(None);
        };
        let inodes = self.superblock.inodes;
        let Some(index) = number.checked_sub(1).filter(|_| number <= inodes) else {
            let check = Check::InodeNumber { number, inodes };
            return Err(check.at(Some(node), self.superblock.inode_table));
        };
        let raw: U64 = table.get(&self.blocks, u64::from(index), Some(node))?;
        Ok(Some(Reference::from_raw(raw.get())))
    }

    /// Returns an upper bound on the number of names in all listings: a name takes at least one
    /// byte.
    pub fn names_max(&self) -> u64 {
        self.directories.max_decoded() / (u64_from(self.listing_lens().1) + 1)
    }

    /// Returns the lengths of a run header and of an entry in a listing.
    pub fn listing_lens(&self) -> (usize, usize) {
        let here = (size_of::<DirHeader>(), size_of::<DirEntry>());
        let legacy = self.superblock.legacy.as_ref();
        legacy.map_or(here, Legacy::listing_lens)
    }

    /// Returns whether the version sorts the names of a listing.
    pub fn is_sorted(&self) -> bool {
        let legacy = self.superblock.legacy.as_ref();
        legacy.is_none_or(Legacy::is_sorted)
    }

    pub fn dir_header(&self, cursor: &mut Cursor<'_>) -> Result<DirHeader> {
        match &self.superblock.legacy {
            None => cursor.read(),
            Some(legacy) => legacy.dir_header(cursor),
        }
    }

    /// Reads a directory entry without its name.
    pub fn dir_entry(&self, cursor: &mut Cursor<'_>) -> Result<DirEntry> {
        match &self.superblock.legacy {
            None => cursor.read(),
            Some(legacy) => legacy.dir_entry(cursor),
        }
    }

    /// Reads a directory index without its name.
    pub fn dir_index(&self, cursor: &mut Cursor<'_>) -> Result<DirIndex> {
        match &self.superblock.legacy {
            None => cursor.read(),
            Some(legacy) => legacy.dir_index(cursor),
        }
    }

    /// Reads the size of the next data block of a file. In a salvage,
    /// [`WRONG_HOLE`](crate::ondisk::WRONG_HOLE) means a hole unless the file's `sparse` field
    /// contradicts it.
    pub fn block_word(&self, cursor: &mut Cursor<'_>, node: NodeId, file: &File) -> Result<u32> {
        let word = self.stored_word(cursor)?;
        match &self.salvage {
            Some(salvage)
                if is_wrong_hole(word) && self.has_wrong_holes(salvage, node, file)? =>
            {
                Ok(0)
            }
            _ => Ok(word),
        }
    }

    fn has_wrong_holes(&self, salvage: &Substitutes, node: NodeId, file: &File) -> Result<bool> {
        let known = *salvage.holes.lock().unpoisoned();
        if let Some((last, has_them)) = known
            && last == node
        {
            return Ok(has_them);
        }
        let block_size = u64::from(self.superblock.block_size);
        let mut cursor = self.inodes_at(file.sizes, node)?;
        let mut bytes = 0;
        for index in 0..file.blocks {
            let word = self.stored_word(&mut cursor)?;
            if word == 0 || is_wrong_hole(word) {
                bytes += block_size.min(file.size - index * block_size);
            }
        }
        // Basic inodes have no `sparse` field. For a file that is all holes, it is one less than
        // the size.
        let has_them = file.sparse == 0 || file.sparse == bytes.min(file.size - 1);
        *salvage.holes.lock().unpoisoned() = Some((node, has_them));
        Ok(has_them)
    }

    fn stored_word(&self, cursor: &mut Cursor<'_>) -> Result<u32> {
        match &self.superblock.legacy {
            None => cursor.read().map(U32::get),
            Some(legacy) => legacy.block_word(cursor),
        }
    }
}

const fn is_wrong_hole(word: u32) -> bool {
    word | BLOCK_STORED == WRONG_HOLE
}

/// Returns a table that could be opened.
fn opened<T>(
    table: Option<Result<T>>,
    damaged: &mut dyn FnMut(Error) -> Result<()>,
) -> Result<Option<T>> {
    match table.transpose() {
        Ok(table) => Ok(table),
        Err(error) => damaged(error).map(|()| None),
    }
}

fn no_entry(table: &'static str, index: u64, node: NodeId) -> Error {
    let count = 0;
    Check::TableIndex {
        table,
        index,
        count,
    }
    .at(Some(node), 0)
}
