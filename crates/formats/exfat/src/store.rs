//! The device of a volume that changes, and the order in which its writes become durable.

use std::sync::Arc;

use forerun_io::{Group, WriteBack};
use forerun_vfs::OpenMutWith;

/// The steps in which changes become durable. All writes of one step are on the device before the first
/// of the next; `docs/formats/exfat.md` says why they have this order.
pub mod group {
    use super::Group;

    /// `VolumeDirty` is set.
    pub const MARK: Group = Group(0);
    /// Clusters are marked used. Clusters of directories are cleared, and so are sectors behind the end
    /// of a directory that are not empty.
    pub const ALLOCATE: Group = Group(1);
    /// Words of the FAT link to these clusters.
    pub const LINK: Group = Group(2);
    /// Parts of new sets behind their first sector; unused entries up to the sector of a new set.
    pub const BEHIND: Group = Group(3);
    /// Sets, new, changed and removed.
    pub const ENTRIES: Group = Group(4);
    /// Sets that move to another sector are marked as departed, in the same step as sets that stay.
    pub const DEPART: Group = ENTRIES;
    /// Moved sets are written to their new sector.
    pub const ARRIVE: Group = Group(6);
    /// Sets that were replaced; parts of removed sets behind their first sector.
    pub const LATE: Group = Group(7);
    /// Parts of these behind their first sector.
    pub const LAST: Group = Group(8);
    /// The pointers of moved sets are cleared in their old places.
    pub const LEFT: Group = Group(9);
    /// Writes that may become durable at any time after the commit that allows them: chains are
    /// cut, clusters are marked free, pointers are cleared in sets that arrived. They are written
    /// with the next commit.
    pub const FREE: Group = Group(10);
    /// `VolumeDirty` is cleared.
    pub const CLEAR: Group = Group(11);
}

/// The device, and the options of writing to it.
pub struct Store {
    pub back: Arc<WriteBack>,
    pub dirsync: bool,
    pub sync: bool,
    pub discard: bool,
    pub continue_on_error: bool,
    pub keep_last_dots: bool,
}

impl Store {
    /// Returns a store that writes to `back`.
    pub fn new(back: Arc<WriteBack>, with: &OpenMutWith) -> Self {
        Self {
            back,
            dirsync: with.dirsync,
            sync: with.sync,
            discard: with.discard,
            continue_on_error: with.continue_on_error,
            keep_last_dots: with.driver_options.contains(&crate::KEEP_LAST_DOTS),
        }
    }

    /// Returns the number of bytes that are written whole or not at all.
    pub fn sector_size(&self) -> u64 {
        self.back.sector_size().into()
    }
}
