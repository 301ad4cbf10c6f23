//! The place of a set on the volume, which is also the id of its node.

use forerun_vfs::NodeId;

use crate::ondisk::ENTRY_LEN;

/// Place of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Position of its file entry, in bytes of the volume.
    pub offset: u64,
    /// It continues in a cluster that is not adjacent and that the FAT names.
    pub far: bool,
}

impl Place {
    const FAR: u64 = 1 << 62;
    const FAR_POINTER: u64 = 1 << 55;

    /// Returns the place as a pointer of a set that is on its way.
    pub const fn pointer(self) -> u64 {
        let far = if self.far { Self::FAR_POINTER } else { 0 };
        (self.offset / ENTRY_LEN) | far
    }

    /// Returns the place that such a pointer names.
    pub const fn of_pointer(pointer: u64) -> Self {
        Self {
            offset: (pointer & (Self::FAR_POINTER - 1)) * ENTRY_LEN,
            far: pointer & Self::FAR_POINTER != 0,
        }
    }

    /// Returns the place as the id of the node that is there.
    pub const fn id(self) -> NodeId {
        let far = if self.far { Self::FAR } else { 0 };
        NodeId((self.offset / ENTRY_LEN) | far)
    }

    /// Returns the place that an id names; nothing for an id that no volume has.
    pub fn of(id: NodeId) -> Option<Self> {
        let offset = (id.0 & (Self::FAR - 1)).checked_mul(ENTRY_LEN)?;
        let far = id.0 & Self::FAR != 0;
        Some(Self { offset, far })
    }
}
