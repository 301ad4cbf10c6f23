//! The trait that a format driver implements.

mod capabilities;

use std::ops::{ControlFlow, Range};

pub use capabilities::{
    Blobs, Capabilities, FileSum, History, Inferred, Layered, Layout, Merged, Objects, Verifier,
};

use crate::{Error, Extent, FileType, Metadata, NodeId, Result, VolumeInfo};

/// A position between two entries of a directory. Its value is private to the driver. It stays
/// valid for as long as the image does not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirCursor(pub u64);

impl DirCursor {
    /// Before the first entry.
    pub const START: Self = Self(0);
}

/// An entry of a directory. `.` and `..` are never visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Name; passes [`check_name`](crate::check_name).
    pub name: &'a [u8],
    /// The node it names. Hard links have the same one.
    pub node: NodeId,
    /// Kind of that node.
    pub kind: FileType,
    /// Cursor that continues after this entry; never [`DirCursor::START`].
    pub next: DirCursor,
}

/// A finding of [`FileSystem::check`].
#[derive(Clone, Debug)]
pub struct Problem {
    /// The node concerned, if there is one.
    pub node: Option<NodeId>,
    /// Whether the image can still be used. A warning is a deviation that loses no data.
    pub fatal: bool,
    /// The error, with its place.
    pub error: Error,
}

/// The core of a driver: maps files to places in the image, by metadata that it reads through its
/// source. Features of only some formats are in [`Capabilities`].
///
/// All methods take `&self` and are called from many threads at once. None reads file data.
/// No method panics, loops without bound or allocates by an unchecked field, whatever the image.
pub trait FileSystem: Send + Sync {
    /// Returns the properties of the image as a whole. They stay the same while it is open.
    fn volume(&self) -> &VolumeInfo;

    /// Returns the root directory.
    fn root(&self) -> NodeId;

    /// Returns the metadata of `node`, as `stat` shows it.
    ///
    /// # Errors
    /// [`Error::StaleNode`] for an id that names no inode, [`Error::Corrupt`], [`Error::Io`].
    fn metadata(&self, node: NodeId) -> Result<Metadata>;

    /// Returns the node that `name` names in `dir`. `.` and `..` are not looked up here.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], and the errors of [`metadata`](Self::metadata).
    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>>;

    /// Visits the entries of `dir` after `from`, in the image's order, until the visitor breaks.
    ///
    /// # Errors
    /// The errors of [`lookup`](Self::lookup). The entries before the damage have been visited.
    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Returns the target of a symbolic link: not empty, without NUL, at most
    /// [`Limits::symlink_len`](crate::Limits::symlink_len) bytes.
    ///
    /// # Errors
    /// [`Error::NotASymlink`], and the errors of [`metadata`](Self::metadata).
    fn read_link(&self, node: NodeId) -> Result<Vec<u8>>;

    /// Visits the extended attributes of `node`: full name, value. None by default.
    ///
    /// # Errors
    /// The errors of [`metadata`](Self::metadata).
    fn xattrs(&self, node: NodeId, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let _ = (node, visit);
        Ok(())
    }

    /// Visits the extents that cover `range` of a regular file in order and without gaps, until the
    /// visitor breaks. The range is clamped to the file's size; the first and last extent may be
    /// clamped to the range or reach past it. No data is read, only metadata.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::NotAFile`], and the errors of
    /// [`metadata`](Self::metadata).
    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Returns the on-disk fields of `node` in the format's own terms and order, for `dump`.
    /// Without a node, returns the fields of the image as a whole. None by default.
    ///
    /// # Errors
    /// The errors of [`metadata`](Self::metadata).
    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        let _ = node;
        Ok(Vec::new())
    }

    /// Runs the checks of the format that reading does not run: checksums, reserved fields, link
    /// counts. Checks `node`, or without a node the image as a whole. The caller also walks the
    /// tree and reads all files. There are none by default.
    ///
    /// # Errors
    /// Only errors that end the check: [`Error::Io`] on the structure itself.
    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        let _ = (node, report);
        Ok(())
    }

    /// Returns the other capabilities of the driver: none by default. The same at each call.
    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}
