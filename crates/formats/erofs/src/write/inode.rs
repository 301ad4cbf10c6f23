//! Encodes inodes.

use forerun_build::{NewNode, NodeKind, WalkedNode};
use forerun_io::{u16_from, u32_from};
use forerun_vfs::Timestamp;

use crate::inode::DataLayout;

impl DataLayout {
    /// Returns the value of `i_format`'s layout bits.
    const fn bits(self) -> u16 {
        let layout: u16 = match self {
            Self::Plain => 0,
            Self::CompressedFull => 1,
            Self::Inline => 2,
            Self::CompressedCompact => 3,
            Self::Chunks => 4,
        };
        layout << 1
    }
}

/// The fields of an inode that do not come from its node.
pub struct Fields {
    pub mode: u16,
    pub planned: WalkedNode,
    pub size: u64,
    pub layout: DataLayout,
    /// Address, device or length of the data, depending on the layout.
    pub union: u32,
    pub xattr_count: u16,
}

pub fn is_extended(node: &NewNode, planned: WalkedNode, size: u64, epoch: Timestamp) -> bool {
    let small = u16::try_from(node.uid).is_ok()
        && u16::try_from(node.gid).is_ok()
        && u16::try_from(planned.nlink).is_ok()
        && u32::try_from(size).is_ok();
    !small || node.mtime != epoch
}

pub const fn core_len(extended: bool) -> u64 {
    if extended { 64 } else { 32 }
}

pub fn encode(node: &NewNode, fields: &Fields, extended: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    let format = fields.layout.bits() | u16::from(extended);
    let half = |value: u32| u16_from(u64::from(value)).to_le_bytes();
    bytes.extend_from_slice(&format.to_le_bytes());
    bytes.extend_from_slice(&fields.xattr_count.to_le_bytes());
    bytes.extend_from_slice(&(kind_bits(&node.kind) | fields.mode & 0o7777).to_le_bytes());
    if extended {
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&fields.size.to_le_bytes());
        bytes.extend_from_slice(&fields.union.to_le_bytes());
        bytes.extend_from_slice(&fields.planned.number.to_le_bytes());
        bytes.extend_from_slice(&node.uid.to_le_bytes());
        bytes.extend_from_slice(&node.gid.to_le_bytes());
        bytes.extend_from_slice(&node.mtime.seconds.to_le_bytes());
        bytes.extend_from_slice(&node.mtime.nanoseconds.to_le_bytes());
        bytes.extend_from_slice(&fields.planned.nlink.to_le_bytes());
        bytes.extend_from_slice(&[0; 16]);
    } else {
        bytes.extend_from_slice(&half(fields.planned.nlink));
        bytes.extend_from_slice(&u32_from(fields.size).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&fields.union.to_le_bytes());
        bytes.extend_from_slice(&fields.planned.number.to_le_bytes());
        bytes.extend_from_slice(&half(node.uid));
        bytes.extend_from_slice(&half(node.gid));
        bytes.extend_from_slice(&[0; 4]);
    }
    bytes
}

const fn kind_bits(kind: &NodeKind) -> u16 {
    match kind {
        NodeKind::Fifo => 0o010_000,
        NodeKind::CharDevice(_) => 0o020_000,
        NodeKind::Directory(_) => 0o040_000,
        NodeKind::BlockDevice(_) => 0o060_000,
        NodeKind::File { .. } => 0o100_000,
        NodeKind::Symlink(_) => 0o120_000,
        NodeKind::Socket => 0o140_000,
    }
}
