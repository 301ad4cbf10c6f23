//! Inode numbers and attributes for the kernel.

use forerun_vfs::{FileType, Metadata, NodeId};

use super::protocol::{Attr, ROOT};

/// The first number for other nodes: 0 is invalid, 1 is the root.
const FIRST: u64 = 2;

/// Maps nodes to inode numbers. All files get one owner.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    pub root: NodeId,
    /// The user of the mounting process. The image's owners mean nothing here and may be unmapped
    /// in a user namespace.
    pub uid: u32,
    pub gid: u32,
    pub block_size: u32,
}

impl Numbers {
    /// Returns the inode number of a node. SquashFS inode references have 48 bits, so the sum
    /// cannot overflow.
    pub const fn number(&self, node: NodeId) -> u64 {
        if node.0 == self.root.0 {
            return ROOT;
        }
        node.0 + FIRST
    }

    /// Returns the node for a number from [`number`](Self::number), `None` for an invalid number.
    pub fn node(&self, number: u64) -> Option<NodeId> {
        match number {
            ROOT => Some(self.root),
            _ => number.checked_sub(FIRST).map(NodeId),
        }
    }

    pub fn attr(&self, number: u64, metadata: &Metadata) -> Attr {
        // Times before the epoch become the epoch.
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

/// Returns the file type as in bits 12 to 15 of a mode; directory entries use the same numbers.
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
