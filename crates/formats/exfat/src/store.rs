//! The device of a volume that changes, and the order in which its writes become durable.

use std::sync::Arc;

use forerun_io::{Group, WriteBack};
use forerun_vfs::OpenMutWith;

/// The steps in which changes become durable. All writes of a step are on the device before the
/// first write of the next; `docs/formats/exfat.md` explains the order.
pub mod group {
    use super::Group;

    /// Sets `VolumeDirty`.
    pub const MARK: Group = Group(0);
    /// Marks clusters used. Clears the clusters of directories, and non-empty sectors beyond the
    /// end of a directory.
    pub const ALLOCATE: Group = Group(1);
    /// Writes FAT words that link to these clusters.
    pub const LINK: Group = Group(2);
    /// Writes the parts of new sets after their first sector, and unused entries up to the sector
    /// of a new set.
    pub const BEHIND: Group = Group(3);
    /// Writes new, changed and removed sets.
    pub const ENTRIES: Group = Group(4);
    /// Marks moving sets as departed, in the same step as sets that stay.
    pub const DEPART: Group = ENTRIES;
    /// Writes moved sets to their new sector.
    pub const ARRIVE: Group = Group(6);
    /// Removes replaced sets, and the parts of removed sets after their first sector.
    pub const LATE: Group = Group(7);
    /// Removes the parts of replaced sets after their first sector.
    pub const LAST: Group = Group(8);
    /// Clears the pointers of moved sets at their old locations.
    pub const LEFT: Group = Group(9);
    /// Writes that may become durable at any time after the commit that allows them: truncates
    /// chains, marks clusters free, clears pointers in moved sets. The next commit writes them.
    pub const FREE: Group = Group(10);
    /// Clears `VolumeDirty`.
    pub const CLEAR: Group = Group(11);
}

pub struct Store {
    pub back: Arc<WriteBack>,
    pub dirsync: bool,
    pub sync: bool,
    pub discard: bool,
    pub continue_on_error: bool,
    pub keep_last_dots: bool,
}

impl Store {
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

    /// Returns the number of bytes that the device writes completely or not at all.
    pub fn sector_size(&self) -> u64 {
        self.back.sector_size().into()
    }
}
