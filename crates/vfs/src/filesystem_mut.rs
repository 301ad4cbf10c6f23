//! The trait of drivers with writable volumes.
//!
//! These drivers map too: the caller asks where the bytes of a write go, writes them, and reports
//! when that is done. Metadata belongs to the driver: it keeps changes as dirty sectors, and writes
//! each of them once, at a sync.

use std::ops::{ControlFlow, Range};

use crate::{Extent, FileSystem, FileType, Metadata, NodeId, Result, Timestamp};

/// The properties of a new node. The driver ignores properties that the format cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// A regular file or a directory; another kind only if the format has it.
    pub kind: FileType,
    pub permissions: u32,
    pub owner: (u32, u32),
    /// The value of all timestamps of the node.
    pub time: Timestamp,
}

/// The changes of `setattr`. Fields that are `None` stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// New length in bytes. An added range reads as zeros and costs no write of data.
    pub size: Option<u64>,
    pub permissions: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub accessed: Option<Timestamp>,
    pub modified: Option<Timestamp>,
    pub created: Option<Timestamp>,
}

/// The part of `stat` that [`Metadata`] lacks, for a node on a writable volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub accessed: Timestamp,
    pub created: Timestamp,
    /// Allocated bytes, a multiple of the allocation unit.
    pub allocated: u64,
}

/// The size and the free space of a volume, for `statfs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Allocation unit in bytes.
    pub block_size: u32,
    /// Number of units on the volume.
    pub blocks: u64,
    /// Number of free units.
    pub free: u64,
}

/// A driver of writable volumes.
///
/// A node stays valid between [`open`](Self::open) and [`release`](Self::release) even when its
/// last name is removed; its space is freed at the last release. Node ids are stable under rename
/// while the volume is open. A failed operation leaves the volume as it was before, unless the
/// device itself fails: then the volume takes no more changes and stays marked dirty.
///
/// Changes become durable with [`sync`](Self::sync) and [`sync_all`](Self::sync_all), always in an
/// order that leaves the volume consistent if the power fails. On a volume opened with `dirsync`,
/// each operation is durable when it returns.
pub trait FileSystemMut: FileSystem {
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
    /// [`Error::NotFound`](crate::Error::NotFound),
    /// [`Error::IsADirectory`](crate::Error::IsADirectory).
    fn unlink(&self, dir: NodeId, name: &[u8]) -> Result<()>;

    /// Removes `name`, which must be an empty directory.
    ///
    /// # Errors
    /// [`Error::NotADirectory`](crate::Error::NotADirectory),
    /// [`Error::NotEmpty`](crate::Error::NotEmpty).
    fn rmdir(&self, dir: NodeId, name: &[u8]) -> Result<()>;

    /// Renames or moves a node. If the new name is taken, replaces the node of that name if
    /// `replace` is set.
    ///
    /// # Errors
    /// [`Error::Exists`](crate::Error::Exists) without `replace`,
    /// [`Error::NotEmpty`](crate::Error::NotEmpty), [`Error::IntoItself`](crate::Error::IntoItself)
    /// for a directory moved below itself.
    fn rename(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), replace: bool) -> Result<()>;

    /// Changes attributes and length. Returns the new metadata.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace), and the errors of
    /// [`metadata`](FileSystem::metadata).
    fn change(&self, node: NodeId, changes: &Changes) -> Result<Metadata>;

    /// Allocates the space for a write of `range` and visits the places of its bytes: stored
    /// extents of the image, in order and without gaps, clamped to the range. If the range begins
    /// after the last written byte, the extents in between come first, and the caller writes zeros
    /// there. The file reads as before until [`written`](Self::written) is called.
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

    /// Records that the bytes of `range` were written to the places that
    /// [`map_write`](Self::map_write) returned. Updates the length and the modification time. The
    /// driver flushes data before the metadata that refers to it.
    ///
    /// # Errors
    /// The errors of [`change`](Self::change).
    fn written(&self, node: NodeId, range: Range<u64>, time: Timestamp) -> Result<()>;

    /// Preallocates `range`. The length of the file does not change if `keep_size` is set.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace), with nothing allocated;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the format cannot allocate beyond the
    /// length.
    fn allocate(&self, node: NodeId, range: Range<u64>, keep_size: bool) -> Result<()>;

    /// Counts a user of `node`. Each call needs a call of [`release`](Self::release).
    ///
    /// # Errors
    /// [`Error::StaleNode`](crate::Error::StaleNode).
    fn open(&self, node: NodeId) -> Result<()>;

    /// Ends a use of `node`. The last call frees its space if the node has no name left.
    ///
    /// # Errors
    /// The errors of the device.
    fn release(&self, node: NodeId) -> Result<()>;

    /// Tells the driver that no caller holds the id of `node` any longer. Callers look the node up
    /// before they use its id again, so the driver may drop state that only keeps ids stable.
    fn forget(&self, node: NodeId) {
        let _ = node;
    }

    /// Tells the driver that the device failed a request for file data; the format may be able to
    /// record that. The driver sees the errors of its own requests itself.
    fn device_failed(&self, error: &crate::Error) {
        let _ = error;
    }

    /// Ends all changes, because a thread panicked in the middle of one and the state in memory may
    /// be wrong. Every later change and commit fails with
    /// [`Error::ReadOnly`](crate::Error::ReadOnly), and nothing more is written. A driver does the
    /// same when it panics itself.
    fn abandon(&self);

    /// Returns whether [`abandon`](Self::abandon) was called, or the driver panicked.
    fn is_abandoned(&self) -> bool;

    /// Makes `node` durable: its contents, its attributes, and the name by which it was reached.
    /// Every change that returned before this call is durable too when the call returns.
    ///
    /// # Errors
    /// The errors of the device.
    fn sync(&self, node: NodeId) -> Result<()>;

    /// Makes all changes durable. Marks the volume clean if no node is open for change.
    ///
    /// # Errors
    /// The errors of the device.
    fn sync_all(&self) -> Result<()>;

    /// Ends all remaining uses, as at the end of a mount: frees the nodes without a name, and makes
    /// all changes durable. The caller makes no further requests.
    ///
    /// # Errors
    /// The errors of the device, after all other steps were tried.
    fn finish(&self) -> Result<()>;

    /// Returns a form that all spellings of a name share. Two names with different forms can exist
    /// in one directory. The form finds the same node as the name does.
    fn fold_name(&self, name: &[u8]) -> Vec<u8> {
        name.to_vec()
    }

    /// Returns the size and the free space of the volume.
    ///
    /// # Errors
    /// The errors of the device, because the allocation bitmap may have to be read.
    fn space(&self) -> Result<Space>;

    /// Discards free space inside `range` (bytes of the volume) in runs of at least `min_len`.
    /// Returns the number of discarded bytes.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the device cannot discard.
    fn trim(&self, range: Range<u64>, min_len: u64) -> Result<u64>;

    /// Sets the attributes of FAT: see [`FatAttributes`](crate::FatAttributes). Ignores bits that are
    /// none, and whether `node` is a directory.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the format has none, and for a root that
    /// has none; the errors of [`change`](Self::change).
    fn set_fat_attributes(&self, node: NodeId, attributes: u32) -> Result<()> {
        let _ = (node, attributes);
        Err(crate::Error::Unsupported("attributes of FAT".into()))
    }

    /// Returns the label of the volume, which is empty if there is none.
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
