//! The location of an entry set on the volume, which is also the id of its node.

use forerun_vfs::NodeId;

use crate::ondisk::ENTRY_LEN;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Byte offset of the file entry on the volume.
    pub offset: u64,
    /// The set continues in a non-adjacent cluster, which the FAT names.
    pub far: bool,
}

impl Place {
    const FAR: u64 = 1 << 62;
    const FAR_POINTER: u64 = 1 << 55;

    /// Returns the location as the pointer field of a moving set.
    pub const fn pointer(self) -> u64 {
        let far = if self.far { Self::FAR_POINTER } else { 0 };
        (self.offset / ENTRY_LEN) | far
    }

    /// Decodes the pointer field of a moving set.
    pub const fn of_pointer(pointer: u64) -> Self {
        Self {
            offset: (pointer & (Self::FAR_POINTER - 1)) * ENTRY_LEN,
            far: pointer & Self::FAR_POINTER != 0,
        }
    }

    /// Returns the id of the node at this location.
    pub const fn id(self) -> NodeId {
        let far = if self.far { Self::FAR } else { 0 };
        NodeId((self.offset / ENTRY_LEN) | far)
    }

    /// Returns the location that an id names; `None` for an id that no volume has.
    pub fn of(id: NodeId) -> Option<Self> {
        let offset = (id.0 & (Self::FAR - 1)).checked_mul(ENTRY_LEN)?;
        let far = id.0 & Self::FAR != 0;
        Some(Self { offset, far })
    }
}
