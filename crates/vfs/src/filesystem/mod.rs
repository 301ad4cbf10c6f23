//! The trait that a format driver implements.

mod capabilities;

use std::ops::{ControlFlow, Range};

pub use capabilities::{
    Blobs, Capabilities, FatAttributes, FileSum, History, Inferred, Layered, Layout, Merged,
    Objects, Verifier,
};

use crate::{Error, Extent, FileType, Metadata, NodeId, Result, VolumeInfo};

/// A position between two entries of a directory. Its value is private to the driver. It stays
/// valid as long as the image does not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirCursor(pub u64);

impl DirCursor {
    /// The position before the first entry.
    pub const START: Self = Self(0);
}

/// An entry of a directory. `.` and `..` are never visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// A name that passes [`check_name`](crate::check_name).
    pub name: &'a [u8],
    /// The node of the entry. Hard links share it.
    pub node: NodeId,
    pub kind: FileType,
    /// The cursor that continues after this entry; never [`DirCursor::START`].
    pub next: DirCursor,
}

#[derive(Clone, Debug)]
pub struct Problem {
    /// The affected node; `None` for the image as a whole.
    pub node: Option<NodeId>,
    /// Whether data is lost or unreadable. A problem that is not fatal is a warning: a deviation
    /// from the format that loses no data.
    pub fatal: bool,
    pub error: Error,
}

/// The core of a driver. It maps files to places in the image, by metadata that it reads through
/// its source. Features that only some formats have are in [`Capabilities`].
///
/// All methods take `&self` and are called from many threads at once. They read no file data. They
/// do not panic, loop without bound or allocate by an unchecked field, whatever the image.
pub trait FileSystem: Send + Sync {
    /// Returns the properties of the image as a whole. They do not change while it is open.
    fn volume(&self) -> &VolumeInfo;

    fn root(&self) -> NodeId;

    /// Returns the metadata of `node`, as `stat` shows it.
    ///
    /// # Errors
    /// [`Error::StaleNode`] for an id that names no inode, [`Error::Corrupt`], [`Error::Io`].
    fn metadata(&self, node: NodeId) -> Result<Metadata>;

    /// Looks up `name` in `dir`. Callers handle `.` and `..` themselves.
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

    /// Visits the extended attributes of `node`, each with its full name and value. By default
    /// there are none.
    ///
    /// # Errors
    /// The errors of [`metadata`](Self::metadata).
    fn xattrs(&self, node: NodeId, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let _ = (node, visit);
        Ok(())
    }

    /// Visits the extents that cover `range` of a regular file, in order and without gaps, until
    /// the visitor breaks. The range is clamped to the file's size. The first and the last extent
    /// may be clamped to the range or reach past it. Reads metadata only.
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

    /// Returns the on-disk fields of `node`, in the format's own terms and order, for `dump`.
    /// Without a node, returns the fields of the image as a whole. By default there are none.
    ///
    /// # Errors
    /// The errors of [`metadata`](Self::metadata).
    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        let _ = node;
        Ok(Vec::new())
    }

    /// Runs the checks of the format that reading does not run: checksums, reserved fields, link
    /// counts. Checks `node`, or without a node the image as a whole. The caller also walks the
    /// tree and reads all files. By default there are no checks.
    ///
    /// # Errors
    /// Only errors that end the check: [`Error::Io`] for the structure itself.
    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        let _ = (node, report);
        Ok(())
    }

    /// Returns the further capabilities of the driver, the same at each call. By default there are
    /// none.
    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}
