//! Requests as operations on the engine: no kernel, no threads, no replies.

use std::sync::{Arc, OnceLock};

use forerun::Reader;
use forerun_engine::Data;
use forerun_io::usize_from;
use forerun_vfs::{Error, NodeId, Result, VolumeInfo};
use fuser::FileAttr;

use crate::MountOptions;
use crate::attr::Ownership;
use crate::backing::Backings;
use crate::connection::Negotiated;
use crate::counts::{Counts, Operation};
use crate::failures::Failures;
use crate::inode::Inodes;
use crate::under_way::UnderWay;

/// One image under one set of mount options.
pub struct Core {
    /// The reader of the image.
    pub reader: Reader,
    /// The image as a whole.
    pub volume: VolumeInfo,
    /// Whether opening a file opens its data, which is an object of a store.
    pub opens: bool,
    pub counts: Counts,
    /// READs that are not answered yet.
    pub under_way: Arc<UnderWay>,
    /// Open files, where opening them means something.
    pub backings: Backings,
    /// Nodes as inode numbers.
    pub inodes: Inodes,
    /// The version and capabilities agreed with the kernel, once they were.
    pub negotiated: OnceLock<Negotiated>,
    owners: Ownership,
    failures: Failures,
}

/// Numbers of statfs(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Size of the image, in blocks.
    pub blocks: u64,
    /// Number of inodes; 0 where the format does not keep it.
    pub inodes: u64,
    /// The format's block size, however large the blocks are that the engine reads.
    pub block_size: u32,
    pub name_max: u32,
}

/// The answer to a request for an extended attribute.
#[derive(Debug, PartialEq, Eq)]
pub enum Xattr {
    /// This image has none at all: the kernel need not ask again.
    Never,
    /// No file of this image has one of that name: programs that ask each file for it need not.
    Unsupported,
    /// There is none of that name.
    Missing,
    /// The value, or the list of names.
    Found(Vec<u8>),
}

/// Where a seek ends up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    At(u64),
    /// The offset is past the end, or no data follows.
    Nowhere,
    /// Not a mode of seeking that the kernel passes to a filesystem.
    Unknown,
}

/// SEEK_DATA of lseek(2).
const SEEK_DATA: i32 = 3;
/// SEEK_HOLE of lseek(2).
const SEEK_HOLE: i32 = 4;

impl Core {
    /// Creates the core for the image that `reader` reads.
    pub fn new(reader: Reader, options: &MountOptions) -> Self {
        let volume = reader.fs().volume().clone();
        let opens = reader.fs().capabilities().objects.is_some();
        reader.set_kept_above();
        Self {
            inodes: Inodes::new(reader.fs().root()),
            owners: Ownership::new(options, &volume),
            backings: Backings::new(options, opens),
            counts: Counts::default(),
            under_way: Arc::default(),
            failures: Failures::default(),
            negotiated: OnceLock::new(),
            reader,
            volume,
            opens,
        }
    }

    /// Returns properties of the image that are the same at each opening. A server that takes a mount
    /// over compares them.
    pub fn likeness(&self) -> Vec<u8> {
        let (format, len) = (self.volume.format, self.volume.image_len);
        let (root, block) = (self.reader.fs().root().0, self.volume.block_size);
        let mut likeness = format!("{format} {len} {root} {block} ").into_bytes();
        likeness.extend_from_slice(&self.volume.label);
        likeness.retain(|byte| *byte != b'\n');
        likeness
    }

    /// Returns the node of an inode number.
    pub const fn node(&self, number: u64) -> NodeId {
        self.inodes.node(number)
    }

    /// Returns the inode number of a node.
    pub fn number(&self, node: NodeId) -> Result<u64> {
        self.inodes.number(node).ok_or(Error::StaleNode(node))
    }

    /// Passes `result` on, and its error to the log.
    pub fn noted<T>(&self, operation: Operation, number: u64, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| self.failures.report(operation, self.node(number), error))
    }

    /// Returns the attributes of a node, as stat(2) reports them.
    pub fn attr(&self, node: NodeId) -> Result<FileAttr> {
        let metadata = self.reader.fs().metadata(node)?;
        Ok(self.owners.attr(self.number(node)?, &metadata))
    }

    /// Finds the child of that name.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<Option<FileAttr>> {
        let dir = self.node(parent);
        match self.reader.fs().lookup(dir, name)? {
            Some(node) => {
                self.reader.observer().name(node.0, dir.0, name);
                self.attr(node).map(Some)
            }
            None => Ok(None),
        }
    }

    /// Reads a range of a file.
    pub fn read(&self, number: u64, offset: u64, len: u32) -> Result<Data> {
        let len = usize_from(u64::from(len));
        self.reader.read(self.node(number), offset, len)
    }

    /// Returns the target of a symbolic link.
    pub fn read_link(&self, number: u64) -> Result<Vec<u8>> {
        self.reader.fs().read_link(self.node(number))
    }

    /// Returns the image's statistics for statfs(2).
    pub fn statistics(&self) -> Statistics {
        let block_size = self.volume.block_size.max(1);
        Statistics {
            blocks: self.volume.image_len.div_ceil(u64::from(block_size)),
            inodes: self.volume.inodes.unwrap_or(0),
            block_size,
            name_max: self.volume.name_max,
        }
    }

    /// Finds the value of one extended attribute.
    pub fn xattr(&self, number: u64, name: &[u8]) -> Result<Xattr> {
        if self.reader.xattrs_absent() {
            return Ok(Xattr::Never);
        }
        if self.reader.xattr_absent(name) {
            return Ok(Xattr::Unsupported);
        }
        let mut found = Xattr::Missing;
        let visit = &mut |key: &[u8], value: &[u8]| {
            if key == name {
                found = Xattr::Found(value.to_vec());
            }
        };
        self.reader.fs().xattrs(self.node(number), visit)?;
        self.reader
            .note_xattr(name, matches!(found, Xattr::Found(_)));
        Ok(found)
    }

    /// Lists the names of all extended attributes, each ended by a NUL. The list is empty where the image
    /// has none, as in the kernel's drivers. ENOSYS would make listxattr(2) fail, and tar warns of that
    /// for every file.
    pub fn xattr_names(&self, number: u64) -> Result<Vec<u8>> {
        let mut names = Vec::new();
        if self.reader.xattrs_absent() {
            return Ok(names);
        }
        let visit = &mut |key: &[u8], _value: &[u8]| {
            names.extend_from_slice(key);
            names.push(0);
        };
        self.reader.fs().xattrs(self.node(number), visit)?;
        Ok(names)
    }

    /// Seeks with SEEK_HOLE or SEEK_DATA; the kernel handles the other modes itself.
    pub fn seek(&self, number: u64, offset: i64, whence: i32) -> Result<Seek> {
        let Ok(offset) = u64::try_from(offset) else {
            return Ok(Seek::Nowhere);
        };
        let found = match whence {
            SEEK_DATA => self.reader.seek_data(self.node(number), offset)?,
            SEEK_HOLE => self.reader.seek_hole(self.node(number), offset)?,
            _ => return Ok(Seek::Unknown),
        };
        Ok(found.map_or(Seek::Nowhere, Seek::At))
    }
}
