//! One open image: superblock, tables, and caches.

use std::collections::HashMap;
use std::sync::Arc;

use forerun_io::{Limits, u64_from};
use forerun_vfs::{Error, NodeId, OpenWith, Result, read_head};
use zerocopy::little_endian::{U32, U64};

use crate::blocks::Blocks;
use crate::cursor::{Cursor, Table};
use crate::error::Check;
use crate::inode::{Dir, File, Inode, InodeBody};
use crate::ondisk::{FragmentEntry, METADATA_BLOCK};
use crate::positions::Positions;
use crate::reference::Reference;
use crate::superblock::{self, Superblock};
use crate::tables::Indexed;
use crate::xattr::XattrTables;

/// The state that all parts of the driver share.
pub struct Image {
    pub superblock: Superblock,
    pub limits: Limits,
    pub blocks: Blocks,
    pub inodes: Table,
    pub directories: Table,
    pub fragments: Option<Indexed>,
    pub export: Option<Indexed>,
    /// Nothing where a salvage found no table.
    pub ids: Option<Indexed>,
    pub xattrs: Option<XattrTables>,
    pub positions: Positions,
    /// Nothing in an image that is opened as usual.
    pub salvage: Option<Substitutes>,
}

/// The values that a salvage uses in place of damaged tables.
pub struct Substitutes {
    /// The owners of nodes whose ids are not known.
    pub uid: u32,
    pub gid: u32,
    /// Fragments whose blocks were found without their table.
    pub fragments: HashMap<u32, FragmentEntry>,
}

impl Image {
    /// Opens the image, and reads its superblock, tables and root.
    ///
    /// # Errors
    /// `UnknownFormat`, `Unsupported`, `Corrupt` if superblock, tables or root fail a check, `Io`
    /// if they cannot be read.
    pub fn open(with: OpenWith) -> Result<Self> {
        let head = read_head(&*with.metadata, superblock::LEN)?;
        let superblock = Superblock::parse(&head, with.metadata.len())?;
        let image = Self::assemble(with, superblock, &mut Err)?;
        let root = NodeId(image.superblock.root.raw());
        match image.inode(root)?.body {
            InodeBody::Dir(_) => Ok(image),
            _ => Err(Check::RootKind.at(Some(root), image.superblock.inode_table)),
        }
    }

    /// Opens an image that may be damaged. Calls `pass_over` with the damage of each table that is left out.
    ///
    /// # Errors
    /// `UnknownFormat`, `Unsupported`, `Corrupt` if the superblock makes no sense, `Io` if it cannot be read.
    pub fn open_damaged(with: OpenWith, pass_over: &mut dyn FnMut(Error)) -> Result<Self> {
        let head = read_head(&*with.metadata, superblock::LEN)?;
        let superblock = Superblock::parse_damaged(&head, with.metadata.len())?;
        let substitutes = Substitutes {
            uid: with.ownership.uid,
            gid: with.ownership.gid,
            fragments: HashMap::new(),
        };
        let mut image = Self::assemble(with, superblock, &mut |error| {
            pass_over(error);
            Ok(())
        })?;
        image.salvage = Some(substitutes);
        Ok(image)
    }

    /// Opens the tables. `damaged` decides about each that cannot be opened.
    fn assemble(
        with: OpenWith,
        superblock: Superblock,
        damaged: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Self> {
        let source = with.metadata;
        let observer = Arc::clone(&with.observer);
        let blocks = Blocks::new(source, superblock.codec, with.cache, observer);
        let indexed = |name, start: u64, count: u64, entry: u64| {
            let pointers = start..superblock.end_of(start);
            Indexed::new(name, pointers, count, entry, superblock::HEAD)
        };
        let fragments = u64::from(superblock.fragments);
        let fragments = superblock
            .fragment_table
            .filter(|_| fragments > 0)
            .map(|start| indexed("fragment table", start, fragments, 16));
        let fragments = opened(fragments, damaged)?;
        let export = superblock
            .export_table
            .map(|start| indexed("export table", start, u64::from(superblock.inodes), 8));
        let export = opened(export, damaged)?;
        let (id_table, ids) = (superblock.id_table, u64::from(superblock.ids));
        let ids = opened(Some(indexed("id table", id_table, ids, 4)), damaged)?;
        let xattrs = superblock
            .xattr_table
            .map(|start| XattrTables::open(&blocks, start, superblock.end_of(start)));
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
            limits: with.limits,
            blocks,
            fragments,
            export,
            ids,
            xattrs,
            positions: Positions::new(),
            salvage: None,
        })
    }

    /// Reads the inode that `node` refers to.
    pub fn inode(&self, node: NodeId) -> Result<Inode> {
        let reference = Reference::from_raw(node.0);
        if reference.block() >= self.inodes.len() || reference.offset() >= METADATA_BLOCK {
            return Err(Error::StaleNode(node));
        }
        let mut cursor = self.inodes_at(reference, node)?;
        Inode::read(&mut cursor, &self.inodes, node, self.superblock.block_size)
    }

    /// Reads the inode of `node`, which must be a regular file.
    pub fn file(&self, node: NodeId) -> Result<File> {
        match self.inode(node)?.body {
            InodeBody::File(file) => Ok(file),
            InodeBody::Dir(_) => Err(Error::IsADirectory),
            _ => Err(Error::NotAFile),
        }
    }

    /// Reads the inode of `node`, which must be a directory.
    pub fn dir(&self, node: NodeId) -> Result<Dir> {
        match self.inode(node)?.body {
            InodeBody::Dir(dir) => Ok(dir),
            _ => Err(Error::NotADirectory),
        }
    }

    /// Returns a cursor in the inode table.
    pub fn inodes_at(&self, reference: Reference, node: NodeId) -> Result<Cursor<'_>> {
        Cursor::new(&self.blocks, self.inodes, reference, Some(node))
    }

    /// Returns a cursor in the directory table.
    pub fn directories_at(&self, reference: Reference, node: NodeId) -> Result<Cursor<'_>> {
        Cursor::new(&self.blocks, self.directories, reference, Some(node))
    }

    /// Returns the owner and the group at two positions of the id table. In a salvage, unknown ones are those
    /// that the caller gave.
    pub fn owners(&self, uid: u16, gid: u16, node: NodeId) -> Result<(u32, u32)> {
        let known = |index, instead: fn(&Substitutes) -> u32| match &self.salvage {
            None => self.id(index, node),
            Some(salvage) => Ok(self.id(index, node).unwrap_or_else(|_| instead(salvage))),
        };
        Ok((known(uid, |s| s.uid)?, known(gid, |s| s.gid)?))
    }

    /// Returns the user or group number at a position of the id table.
    pub fn id(&self, index: u16, node: NodeId) -> Result<u32> {
        let Some(ids) = &self.ids else {
            return Err(no_entry("id table", index.into(), node));
        };
        let id: U32 = ids.get(&self.blocks, u64::from(index), Some(node))?;
        Ok(id.get())
    }

    /// Returns an entry of the fragment table, or what a salvage found in its place.
    pub fn fragment(&self, index: u32, node: NodeId) -> Result<FragmentEntry> {
        let found = self.salvage.as_ref();
        if let Some(entry) = found.and_then(|salvage| salvage.fragments.get(&index)) {
            return Ok(*entry);
        }
        let index = u64::from(index);
        match &self.fragments {
            Some(table) => table.get(&self.blocks, index, Some(node)),
            None => Err(no_entry("fragment table", index, node)),
        }
    }

    /// Returns the place of an inode by the export table, or nothing if there is no such table.
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

    /// Returns the most names that listings can hold: an entry takes at least nine bytes.
    pub fn names_max(&self) -> u64 {
        self.directories.max_decoded() / (u64_from(size_of::<crate::ondisk::DirEntry>()) + 1)
    }
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
