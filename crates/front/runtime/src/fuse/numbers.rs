//! Inode numbers of nodes, and properties of nodes as the kernel takes them.

use forerun_vfs::{FileType, Metadata, NodeId};

use super::protocol::{Attr, ROOT};

/// Numbers below are taken: 0 is no inode, 1 the root.
const FIRST: u64 = 2;

/// The mapping of nodes to inode numbers, and the owner of all files.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    pub root: NodeId,
    /// The user of the process that mounts. The owners that the image names mean nothing here, and in a user
    /// namespace they have no numbers.
    pub uid: u32,
    pub gid: u32,
    pub block_size: u32,
}

impl Numbers {
    /// Returns the inode number of a node. References of SquashFS have 48 bits, so they do not overflow.
    pub const fn number(&self, node: NodeId) -> u64 {
        if node.0 == self.root.0 {
            return ROOT;
        }
        node.0 + FIRST
    }

    /// Returns the node of an inode number that [`number`](Self::number) returned; nothing for others.
    pub fn node(&self, number: u64) -> Option<NodeId> {
        match number {
            ROOT => Some(self.root),
            _ => number.checked_sub(FIRST).map(NodeId),
        }
    }

    /// Returns the properties of a node.
    pub fn attr(&self, number: u64, metadata: &Metadata) -> Attr {
        // Times before the epoch are rare enough in an AppImage to be the epoch.
        let mtime = u64::try_from(metadata.mtime.seconds).unwrap_or(0);
        let nanoseconds = metadata.mtime.nanoseconds;
        Attr {
            ino: number,
            size: metadata.size,
            blocks: metadata.size.div_ceil(512),
            atime: mtime,
            mtime,
            ctime: mtime,
            atimensec: nanoseconds,
            mtimensec: nanoseconds,
            ctimensec: nanoseconds,
            mode: kind_bits(metadata.kind) << 12 | u32::from(metadata.mode),
            nlink: metadata.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: metadata.device.pack().unwrap_or(0),
            blksize: self.block_size,
            flags: 0,
        }
    }
}

/// Returns the kind as the upper bits of a mode, and as directories list it.
pub const fn kind_bits(kind: FileType) -> u32 {
    match kind {
        FileType::Fifo => 1,
        FileType::CharDevice => 2,
        FileType::Directory => 4,
        FileType::BlockDevice => 6,
        FileType::Regular => 8,
        FileType::Symlink => 10,
        FileType::Socket => 12,
    }
}
