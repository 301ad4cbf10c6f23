//! The trait of drivers whose volumes can be changed.
//!
//! Drivers map here too: the caller asks where the bytes of a write go, moves them, and reports
//! when they are in place. Metadata belongs to the driver: it keeps changes as dirty sectors, and
//! writes each of them once, at a sync.

use std::ops::{ControlFlow, Range};

use crate::{Extent, FileSystem, FileType, Metadata, NodeId, Result, Timestamp};

/// The properties of a new node. The driver leaves out properties that the format cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// A regular file or a directory; other kinds if the format has them.
    pub kind: FileType,
    /// Permission bits, 0 to 0o7777.
    pub permissions: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// All its times.
    pub time: Timestamp,
}

/// The changes of `setattr`. Fields that are `None` stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// New length in bytes. An added range reads as zeros and costs no write of data.
    pub size: Option<u64>,
    /// Permission bits, 0 to 0o7777.
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub accessed: Option<Timestamp>,
    /// Last change of the contents.
    pub modified: Option<Timestamp>,
    /// Creation.
    pub created: Option<Timestamp>,
}

/// The part of `stat` that [`Metadata`] lacks, for a node on a volume that can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Last access.
    pub accessed: Timestamp,
    /// Creation.
    pub created: Timestamp,
    /// Bytes allocated, whole units of allocation.
    pub allocated: u64,
}

/// Room on a volume, for `statfs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Unit of allocation in bytes.
    pub block_size: u32,
    /// Such units on the volume.
    pub blocks: u64,
    /// Free units on the volume.
    pub free: u64,
}

/// A driver of volumes that can be changed.
///
/// A node stays valid between [`open`](Self::open) and [`release`](Self::release) even when its
/// last name is removed; its space is freed at the last release. Ids of nodes are stable under
/// rename for as long as the volume is open. An operation that fails leaves the volume as it was
/// before, unless the device itself fails: then the volume takes no more changes and stays marked
/// dirty.
///
/// Unless the volume was opened so that each operation is durable when it returns (`dirsync`),
/// changes become durable with [`sync`](Self::sync) and [`sync_all`](Self::sync_all), always in an
/// order that leaves the volume consistent if the power fails.
pub trait FileSystemMut: FileSystem {
    /// Returns the times and the allocation of `node`.
    ///
    /// # Errors
    /// The errors of [`metadata`](FileSystem::metadata).
    fn usage(&self, node: NodeId) -> Result<Usage>;

    /// Creates `name` in `dir`.
    ///
    /// # Errors
    /// [`Error::Exists`](crate::Error::Exists), [`Error::NoSpace`](crate::Error::NoSpace),
    /// [`Error::InvalidName`](crate::Error::InvalidName),
    /// [`Error::ReadOnly`](crate::Error::ReadOnly),
    /// [`Error::Unsupported`](crate::Error::Unsupported) for kinds that the format lacks.
    fn create(&self, dir: NodeId, name: &[u8], new: &NewNode) -> Result<NodeId>;

    /// Removes `name`, which must not be a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::Error::NotFound), [`Error::IsADirectory`](crate::Error::IsADirectory).
    fn unlink(&self, dir: NodeId, name: &[u8]) -> Result<()>;

    /// Removes `name`, an empty directory.
    ///
    /// # Errors
    /// [`Error::NotADirectory`](crate::Error::NotADirectory), [`Error::NotEmpty`](crate::Error::NotEmpty).
    fn rmdir(&self, dir: NodeId, name: &[u8]) -> Result<()>;

    /// Renames or moves a node. With `replace`, it replaces a node that has the new name.
    ///
    /// # Errors
    /// [`Error::Exists`](crate::Error::Exists) without `replace`,
    /// [`Error::NotEmpty`](crate::Error::NotEmpty), [`Error::IntoItself`](crate::Error::IntoItself)
    /// for a directory moved below itself.
    fn rename(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), replace: bool) -> Result<()>;

    /// Changes attributes and length. Returns the metadata as it is afterwards.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) and the errors of
    /// [`metadata`](FileSystem::metadata).
    fn change(&self, node: NodeId, changes: &Changes) -> Result<Metadata>;

    /// Allocates the space for a write of `range` and visits the places of its bytes: stored
    /// extents of the image, in order and without gaps, clamped to the range. If the range begins
    /// after the last written byte, the extents in between come first, and the caller writes zeros
    /// there. Until [`written`](Self::written) is called the file reads as before.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace), with nothing allocated;
    /// [`Error::TooLarge`](crate::Error::TooLarge).
    fn map_write(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Records that the bytes of `range` are in the places that [`map_write`](Self::map_write)
    /// returned. Updates the length and the time of last change. Data is flushed before the
    /// metadata that refers to it.
    ///
    /// # Errors
    /// The errors of [`change`](Self::change).
    fn written(&self, node: NodeId, range: Range<u64>, time: Timestamp) -> Result<()>;

    /// Preallocates `range`. With `keep_size` the length stays as it is.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace), with nothing allocated;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the format cannot allocate more than
    /// the length.
    fn allocate(&self, node: NodeId, range: Range<u64>, keep_size: bool) -> Result<()>;

    /// Counts a use of `node`; as many calls of [`release`](Self::release) end it.
    ///
    /// # Errors
    /// [`Error::StaleNode`](crate::Error::StaleNode).
    fn open(&self, node: NodeId) -> Result<()>;

    /// Ends a use of `node`. The last one frees its space if no name is left.
    ///
    /// # Errors
    /// The errors of the device.
    fn release(&self, node: NodeId) -> Result<()>;

    /// Tells the driver that no caller holds the id of `node` any longer. Callers look the node up
    /// before they use its id again, so the driver may drop state that only keeps ids stable.
    fn forget(&self, node: NodeId) {
        let _ = node;
    }

    /// Tells the driver that the device failed a request for file data. The driver knows the errors
    /// of its own requests; the format may have a place to record one.
    fn device_failed(&self, error: &crate::Error) {
        let _ = error;
    }

    /// Ends all changes: a thread panicked in the middle of one, so the state in memory may be
    /// wrong. Every later change and commit fails with [`Error::ReadOnly`](crate::Error::ReadOnly),
    /// and nothing more is written. A driver does the same when it panics itself.
    fn abandon(&self);

    /// Returns whether [`abandon`](Self::abandon) was called, or the driver panicked.
    fn is_abandoned(&self) -> bool;

    /// Makes `node` durable: contents, attributes and the name by which it was reached. Every other
    /// change that returned before this call is durable too when it returns.
    ///
    /// # Errors
    /// The errors of the device.
    fn sync(&self, node: NodeId) -> Result<()>;

    /// Makes everything durable. Marks the volume clean if nothing is open for change.
    ///
    /// # Errors
    /// The errors of the device.
    fn sync_all(&self) -> Result<()>;

    /// Ends every remaining use, as at the end of a mount: frees the nodes without a name, and
    /// makes everything durable as [`sync_all`](Self::sync_all) does. No request follows.
    ///
    /// # Errors
    /// The errors of the device, after everything else was tried.
    fn finish(&self) -> Result<()>;

    /// Returns the form that all spellings of a name share. If two names have different forms, the
    /// volume can hold both in one directory. The form finds the same node as the name does.
    fn fold_name(&self, name: &[u8]) -> Vec<u8> {
        name.to_vec()
    }

    /// Returns the room on the volume.
    ///
    /// # Errors
    /// The errors of the device: the allocation bitmap may have to be read.
    fn space(&self) -> Result<Space>;

    /// Discards free space inside `range` (bytes of the volume) in runs of at least `min_len`.
    /// Returns the number of bytes discarded.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the device cannot discard.
    fn trim(&self, range: Range<u64>, min_len: u64) -> Result<u64>;

    /// Returns the label of the volume; empty if there is none.
    ///
    /// # Errors
    /// The errors of [`metadata`](FileSystem::metadata).
    fn label(&self) -> Result<Vec<u8>>;

    /// Sets the label of the volume.
    ///
    /// # Errors
    /// [`Error::InvalidName`](crate::Error::InvalidName).
    fn set_label(&self, label: &[u8]) -> Result<()>;
}
