//! The trait that a format driver implements.

use std::fmt;
use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_io::{BlobId, ReadAt};

use crate::{Error, Extent, FileType, Metadata, Result};

/// A node, by what its format finds it with: header offset, inode number, nid, entry position.
/// Stable for as long as the image does not change, so it can be an inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A position between two entries of a directory. What it means is the driver's business; it stays
/// valid for as long as the image does not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirCursor(pub u64);

impl DirCursor {
    /// Before the first entry.
    pub const START: Self = Self(0);
}

/// An entry of a directory. `.` and `..` are never among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Name; passes [`check_name`](crate::check_name).
    pub name: &'a [u8],
    /// The node it names. Hard links give the same one.
    pub node: NodeId,
    /// Kind of that node.
    pub kind: FileType,
    /// Where to go on after this entry; never [`DirCursor::START`].
    pub next: DirCursor,
}

/// The properties of an image as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VolumeInfo {
    /// Name of the format.
    pub format: &'static str,
    /// Volume name or label; empty where there is none.
    pub label: Vec<u8>,
    /// Bytes of the image by its own account; the source may be longer.
    pub image_len: u64,
    /// Block size that statfs reports, in bytes.
    pub block_size: u32,
    /// Number of inodes, where the format keeps it.
    pub inodes: Option<u64>,
    /// Names that an image of this length can hold at the most, where the format tells. A tree that
    /// shows more of them shows some directory twice; walks end there.
    pub names_max: Option<u64>,
    /// Longest name the format can hold, in bytes.
    pub name_max: u32,
    /// Whether any node can have extended attributes.
    pub has_xattrs: bool,
    /// Whether nodes have owners and permissions of their own; where not, front ends may put the
    /// caller's in their place.
    pub has_owners: bool,
    /// Whether nodes have times of modification; where not, all times are the epoch.
    pub has_times: bool,
    /// Whether files have their data outside the image, so that opening one may fail where stat
    /// does not: front ends then have the engine open files when they are opened.
    pub opens: bool,
    /// Devices besides the image that hold data of files.
    pub devices: u32,
    /// Whether a block of file data may belong to several files, or to one file several times, other
    /// than by files of equal contents that begin in the same place.
    pub shares_blocks: bool,
    /// Whether names that differ only in case name the same node: a front end that remembers names
    /// must not take one for missing, or for another, by its bytes.
    pub folds_case: bool,
    /// Further facts in the format's own terms, for `info`.
    pub details: Vec<(&'static str, String)>,
    /// Warnings for a user of the image, a sentence each without a full stop.
    pub warnings: Vec<String>,
}

impl VolumeInfo {
    /// A volume of which only the basic facts are known: no label, no xattrs, no details.
    #[must_use]
    pub const fn new(format: &'static str, image_len: u64, block_size: u32) -> Self {
        Self {
            format,
            label: Vec::new(),
            image_len,
            block_size,
            inodes: None,
            names_max: None,
            name_max: 255,
            has_xattrs: false,
            has_owners: true,
            has_times: true,
            devices: 0,
            opens: false,
            shares_blocks: false,
            folds_case: false,
            details: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// Something that [`FileSystem::check`] found.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The node it is about, where there is one.
    pub node: Option<NodeId>,
    /// Whether the image can still be used as it is. A warning is a deviation that loses nothing.
    pub fatal: bool,
    /// The error, with its place.
    pub error: Error,
}

/// A driver: answers where things are, from metadata it reads through the source it was opened on.
///
/// All methods take `&self` and are called from many threads at once. None reads file data.
/// No method panics, loops without bound or allocates by an unchecked field, whatever the image.
pub trait FileSystem: Send + Sync {
    /// The image as a whole.
    fn volume(&self) -> VolumeInfo;

    /// The root directory.
    fn root(&self) -> NodeId;

    /// Where the inode of `node` begins in the image, as far as that is known without reading it:
    /// for a caller that wants many of them and can ask for all at once. Nothing by default, and where inodes
    /// are compressed or lie outside the image.
    fn inode_offset(&self, node: NodeId) -> Option<u64> {
        let _ = node;
        None
    }

    /// Returns the metadata of `node`, as `stat` shows it.
    ///
    /// # Errors
    /// [`Error::StaleNode`] for an id that names no inode, [`Error::Corrupt`], [`Error::Io`].
    fn metadata(&self, node: NodeId) -> Result<Metadata>;

    /// The node that `name` means in `dir`. `.` and `..` are not looked up here.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], and those of [`metadata`](Self::metadata).
    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>>;

    /// Visits the entries of `dir` after `from`, in the image's order, until the visitor breaks.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup). Entries before the damage have been visited then.
    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Target of a symbolic link: not empty, without NUL, at most
    /// [`Limits::symlink_len`](crate::Limits::symlink_len) bytes.
    ///
    /// # Errors
    /// [`Error::NotASymlink`], and those of [`metadata`](Self::metadata).
    fn read_link(&self, node: NodeId) -> Result<Vec<u8>>;

    /// Visits the extended attributes of `node`: full name, value. None by default.
    ///
    /// # Errors
    /// Those of [`metadata`](Self::metadata).
    fn xattrs(&self, node: NodeId, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let _ = (node, visit);
        Ok(())
    }

    /// Visits the extents that cover `range` of a regular file in order and without gaps, until the
    /// visitor breaks. The range is clamped to the file's size; the first and last extent may be
    /// clamped to the range or reach past it. No data is read, only metadata.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::NotAFile`], and those of [`metadata`](Self::metadata).
    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Opens a store of data that extents name besides the image itself. The caller keeps it open
    /// while it needs it; each call opens anew. None by default.
    ///
    /// # Errors
    /// [`Error::Blob`] where it cannot be opened, [`Error::Unsupported`] where no extent names it.
    fn blob(&self, blob: BlobId) -> Result<Arc<dyn ReadAt>> {
        Err(Error::Unsupported(format!(
            "data outside the image (blob {})",
            blob.0
        )))
    }

    /// Returns whether what [`blob`](Self::blob) opened before may still be read. Asked when a file with data in it
    /// is opened; on `false` the caller opens the blob anew. True by default.
    fn is_current(&self, _blob: BlobId) -> bool {
        true
    }

    /// Opens the file of the host that holds exactly the data of `node`, where there is one: kernels
    /// can read that themselves. None by default.
    ///
    /// # Errors
    /// Those of [`map`](Self::map) and [`blob`](Self::blob).
    fn backing(&self, node: NodeId) -> Result<Option<File>> {
        let _ = node;
        Ok(None)
    }

    /// Where the image keeps its metadata, in the order a full walk reads it: what prefetch reads
    /// ahead. Empty where metadata is strewn among the data.
    fn metadata_ranges(&self) -> Vec<Range<u64>> {
        Vec::new()
    }

    /// The on-disk fields of `node` in the format's own terms and order, for `dump`. With no node,
    /// those of the image as a whole.
    ///
    /// # Errors
    /// Those of [`metadata`](Self::metadata).
    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>>;

    /// Reports whatever the format can check of `node` (or, with none, of the image as a whole)
    /// beyond what reading it does: checksums, reserved fields, link counts. The caller walks the
    /// tree and reads everything besides.
    ///
    /// # Errors
    /// Only those that end the check: [`Error::Io`] on the structure itself.
    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        let _ = (node, report);
        Ok(())
    }
}
