//! Operations on an image, independent of the kernel protocol.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use forerun::Reader;
use forerun_engine::Data;
use forerun_io::usize_from;
use forerun_vfs::{DirCursor, Error, FileType, Held, NodeId, Result, VolumeInfo};
use fuser::FileAttr;

use crate::MountOptions;
use crate::attr::Ownership;
use crate::backing::Backings;
use crate::connection::Negotiated;
use crate::counts::{Counts, Operation};
use crate::failures::Failures;
use crate::inode::Inodes;
use crate::under_way::UnderWay;

pub struct Core {
    pub reader: Reader,
    pub volume: VolumeInfo,
    /// Whether a file's data is a separate object, which OPEN opens.
    pub opens: bool,
    pub counts: Counts,
    pub under_way: Arc<UnderWay>,
    /// Open files, used if `opens`.
    pub backings: Backings,
    pub inodes: Inodes,
    /// The protocol version and capabilities; set by INIT.
    pub negotiated: OnceLock<Negotiated>,
    /// Each directory and the one above it, once the kernel has asked for one.
    above: OnceLock<HashMap<NodeId, NodeId>>,
    owners: Ownership,
    failures: Failures,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    pub blocks: u64,
    /// Number of inodes; 0 if the format does not store it.
    pub inodes: u64,
    /// The format's block size, regardless of the engine's requests.
    pub block_size: u32,
    pub name_max: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Xattr {
    /// The image has no attributes: the kernel need not ask again.
    Never,
    /// No file of the image has an attribute of this name: programs need not ask for each file.
    Unsupported,
    Missing,
    /// The value, or the list of names.
    Found(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    At(u64),
    /// The offset is beyond the end, or no data follows.
    Nowhere,
    /// The kernel does not pass this mode to filesystems.
    Unknown,
}

const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

impl Core {
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
            above: OnceLock::new(),
            reader,
            volume,
            opens,
        }
    }

    /// Returns properties of the image that are the same whenever it is opened. A server that takes
    /// over a mount compares them.
    pub fn likeness(&self) -> Vec<u8> {
        let (format, len) = (self.volume.format, self.volume.image_len);
        let (root, block) = (self.reader.fs().root().0, self.volume.block_size);
        let mut likeness = format!("{format} {len} {root} {block} ").into_bytes();
        likeness.extend_from_slice(&self.volume.label);
        likeness.retain(|byte| *byte != b'\n');
        likeness
    }

    pub const fn node(&self, number: u64) -> NodeId {
        self.inodes.node(number)
    }

    pub fn number(&self, node: NodeId) -> Result<u64> {
        self.inodes.number(node).ok_or(Error::StaleNode(node))
    }

    /// Logs the error of `result` and passes `result` on.
    pub fn noted<T>(&self, operation: Operation, number: u64, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| self.failures.report(operation, self.node(number), error))
    }

    pub fn attr(&self, node: NodeId) -> Result<FileAttr> {
        let metadata = self.reader.fs().metadata(node)?;
        Ok(self.owners.attr(self.number(node)?, &metadata))
    }

    /// Finds the child of that name. For a file handle, the kernel asks for `.` of any node and `..` of a
    /// directory.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<Option<FileAttr>> {
        let dir = self.node(parent);
        match name {
            b"." => return self.attr(dir).map(Some),
            b".." => {
                let above = self.dir_above(dir)?;
                return above.map(|above| self.attr(above)).transpose();
            }
            _ => {}
        }
        match self.reader.fs().lookup(dir, name)? {
            Some(node) => {
                self.reader.observer().name(node.0, dir.0, name);
                self.attr(node).map(Some)
            }
            None => Ok(None),
        }
    }

    /// Returns the directory above a directory; nothing where the tree has no such directory.
    fn dir_above(&self, dir: NodeId) -> Result<Option<NodeId>> {
        if let Some(above) = self.above.get() {
            return Ok(above.get(&dir).copied());
        }
        let found = self.directories()?;
        Ok(self.above.get_or_init(|| found).get(&dir).copied())
    }

    /// Returns every directory with the one above it. Most formats store no way up.
    fn directories(&self) -> Result<HashMap<NodeId, NodeId>> {
        let fs = self.reader.fs();
        let mut held = Held::new(self.reader.limits());
        let mut above = HashMap::from([(fs.root(), fs.root())]);
        let mut left = vec![fs.root()];
        while let Some(dir) = left.pop() {
            let mut full = Ok(());
            fs.read_dir(dir, DirCursor::START, &mut |entry| {
                if entry.kind == FileType::Directory && !above.contains_key(&entry.node) {
                    full = held.add(size_of::<[NodeId; 2]>());
                    above.insert(entry.node, dir);
                    left.push(entry.node);
                }
                match full {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            })?;
            full?;
        }
        Ok(above)
    }

    pub fn read(&self, number: u64, offset: u64, len: u32) -> Result<Data> {
        let len = usize_from(u64::from(len));
        self.reader.read(self.node(number), offset, len)
    }

    pub fn read_link(&self, number: u64) -> Result<Vec<u8>> {
        self.reader.fs().read_link(self.node(number))
    }

    pub fn statistics(&self) -> Statistics {
        let block_size = self.volume.block_size.max(1);
        Statistics {
            blocks: self.volume.image_len.div_ceil(u64::from(block_size)),
            inodes: self.volume.inodes.unwrap_or(0),
            block_size,
            name_max: self.volume.name_max,
        }
    }

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

    /// Lists the names of all extended attributes, each terminated by NUL. Like the kernel's
    /// drivers, returns an empty list if the image has none: after ENOSYS, listxattr(2) would fail,
    /// and tar would warn about every file.
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
