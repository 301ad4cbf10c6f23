//! Lays out the inodes, and writes the image.
//!
//! The order is: header, superblock, inodes, shared attributes, whole blocks.

use forerun_build::BuildError;
use forerun_io::{u16_from, u32_from, u64_from};
use forerun_vfs::Timestamp;

use super::contents::{self, Layout, Shape};
use super::failed;
use super::flat::{Flat, FlatTree, NodeBody};
use super::output::Output;
use super::xattr::{self, Shared};
use crate::ondisk::{FEATURE_COMPAT, HEADER_MAGIC, HEADER_VERSION, INODES_START, SUPERBLOCK_START};
use crate::verity::BLOCK;

/// Unit of inode numbers, which are offsets.
const SLOT_64: u64 = 32;

const BLOCK_64: u64 = 4096;

/// Header flag: the image has POSIX ACLs.
const FLAG_ACLS: u32 = 1;

struct Placed {
    shape: Shape,
    xattrs: xattr::XattrBody,
    extended: bool,
    at: u64,
    /// First of its data blocks.
    block: u32,
}

pub struct Image<'t> {
    tree: &'t FlatTree,
    shared: Shared,
    placed: Vec<Placed>,
    /// Time of all compact inodes, which store no time.
    epoch: Timestamp,
    shared_at: u64,
    blocks_at: u64,
    len: u64,
}

impl<'t> Image<'t> {
    pub fn new(tree: &'t FlatTree) -> Result<Self, BuildError> {
        let shared = Shared::new(tree)?;
        let epoch = tree.inodes.iter().map(|inode| inode.mtime).min();
        let epoch = epoch.unwrap_or_default();
        let mut placed = Vec::with_capacity(tree.inodes.len());
        let mut end = INODES_START;
        for inode in &tree.inodes {
            let xattrs = xattr::XattrBody::new(&inode.xattrs, &shared)?;
            let extended = needs_extended(inode, epoch);
            let meta = inode_len(extended) + xattrs.len();
            let shape = Shape::new(inode, meta).ok_or_else(|| {
                failed("a file is larger than 7 PiB, which is the limit of the format".into())
            })?;
            let at = place(end.next_multiple_of(SLOT_64), u64_from(meta), &shape);
            end = at + u64_from(meta + shape.tail);
            placed.push(Placed {
                shape,
                xattrs,
                extended,
                at,
                block: 0,
            });
        }
        let shared_at = end.next_multiple_of(SLOT_64);
        let blocks_at = (shared_at + u64_from(shared.len())).next_multiple_of(BLOCK_64);
        let mut image = Self {
            tree,
            shared,
            placed,
            epoch,
            shared_at,
            blocks_at,
            len: blocks_at,
        };
        image.place_blocks()?;
        Ok(image)
    }

    fn place_blocks(&mut self) -> Result<(), BuildError> {
        for placed in &mut self.placed {
            if placed.shape.blocks == 0 {
                continue;
            }
            placed.block = u32::try_from(self.len / BLOCK_64)
                .map_err(|_| failed("the metadata takes 16 TiB or more".into()))?;
            self.len += u64_from(placed.shape.blocks) * BLOCK_64;
        }
        Ok(())
    }

    /// Writes the image. `version` selects the rules of the layout.
    pub fn write(&self, version: u32, out: &mut Output<'_>) -> Result<(), BuildError> {
        let flags = if self.tree.acls { FLAG_ACLS } else { 0 };
        for word in [HEADER_MAGIC, HEADER_VERSION, flags, version] {
            out.write(&word.to_le_bytes())?;
        }
        out.zeros_to(SUPERBLOCK_START)?;
        out.write(&self.superblock())?;
        let nids: Vec<u64> = self
            .placed
            .iter()
            .map(|placed| placed.at / SLOT_64)
            .collect();
        let base = u32_from(self.shared_at % BLOCK_64);
        for (number, (inode, placed)) in self.tree.inodes.iter().zip(&self.placed).enumerate() {
            out.zeros_to(placed.at)?;
            let mut bytes = self.inode(number, inode, placed);
            placed.xattrs.write(base, &mut bytes);
            if placed.shape.tail > 0 {
                let contents = contents::bytes(inode, &placed.shape, self.tree, &nids);
                bytes.extend(&contents[placed.shape.blocks * BLOCK..]);
            }
            out.write(&bytes)?;
        }
        out.zeros_to(self.shared_at)?;
        for entry in &self.shared.entries {
            out.write(entry)?;
        }
        out.zeros_to(self.blocks_at)?;
        self.write_blocks(&nids, out)
    }

    fn write_blocks(&self, nids: &[u64], out: &mut Output<'_>) -> Result<(), BuildError> {
        for (inode, placed) in self.tree.inodes.iter().zip(&self.placed) {
            let len = placed.shape.blocks * BLOCK;
            if len == 0 {
                continue;
            }
            let mut contents = contents::bytes(inode, &placed.shape, self.tree, nids);
            contents.resize(len, 0);
            out.write(&contents)?;
        }
        Ok(())
    }

    fn superblock(&self) -> Vec<u8> {
        let root = self.placed.first().map_or(0, |root| root.at / SLOT_64);
        let mut bytes = Vec::with_capacity(128);
        bytes.extend(crate::ondisk::EROFS_MAGIC.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(FEATURE_COMPAT.to_le_bytes());
        // log2 of the block size, and no extension slots.
        bytes.extend([12, 0]);
        bytes.extend(u16::try_from(root).unwrap_or(0).to_le_bytes());
        bytes.extend(u64_from(self.placed.len()).to_le_bytes());
        bytes.extend(self.epoch.seconds.to_le_bytes());
        bytes.extend(self.epoch.nanoseconds.to_le_bytes());
        bytes.extend(u32_from(self.len / BLOCK_64).to_le_bytes());
        // Inode numbers count from the start of the image.
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(u32_from(self.shared_at / BLOCK_64).to_le_bytes());
        bytes.resize(128, 0);
        bytes
    }

    fn inode(&self, number: usize, inode: &Flat, placed: &Placed) -> Vec<u8> {
        let shape = &placed.shape;
        let format = shape.layout.number() << 1 | u16::from(placed.extended);
        let union = match (&inode.body, shape.layout) {
            (NodeBody::Device(rdev), _) => *rdev,
            (_, Layout::Chunks) => shape.chunk_bits,
            _ => placed.block,
        };
        let number = u32_from(u64_from(number));
        let mut bytes = Vec::with_capacity(64);
        bytes.extend(format.to_le_bytes());
        bytes.extend(placed.xattrs.icount().to_le_bytes());
        bytes.extend(inode.mode.to_le_bytes());
        if placed.extended {
            bytes.extend([0; 2]);
            bytes.extend(shape.size.to_le_bytes());
            bytes.extend(union.to_le_bytes());
            bytes.extend(number.to_le_bytes());
            bytes.extend(inode.uid.to_le_bytes());
            bytes.extend(inode.gid.to_le_bytes());
            bytes.extend(inode.mtime.seconds.to_le_bytes());
            bytes.extend(inode.mtime.nanoseconds.to_le_bytes());
            bytes.extend(inode.nlink.to_le_bytes());
            bytes.extend([0; 16]);
        } else {
            bytes.extend(u16_from(inode.nlink.into()).to_le_bytes());
            bytes.extend(u32_from(shape.size).to_le_bytes());
            bytes.extend([0; 4]);
            bytes.extend(union.to_le_bytes());
            bytes.extend(number.to_le_bytes());
            bytes.extend(u16_from(inode.uid.into()).to_le_bytes());
            bytes.extend(u16_from(inode.gid.into()).to_le_bytes());
            bytes.extend([0; 4]);
        }
        bytes
    }
}

/// Returns whether an inode needs the extended form. The compact form has 16 bits for owners and
/// links, 32 bits for the size, and no time.
fn needs_extended(inode: &Flat, epoch: Timestamp) -> bool {
    let max = u32::from(u16::MAX);
    let size = match inode.body {
        NodeBody::Object { size } => size,
        _ => 0,
    };
    inode.mtime != epoch
        || inode.uid > max
        || inode.gid > max
        || inode.nlink > max
        || size > u64::from(u32::MAX)
}

const fn inode_len(extended: bool) -> usize {
    if extended { 64 } else { 32 }
}

/// Returns the offset of an inode that could start at `at`. That is `at`, unless its tail would
/// cross a block border. Then the inode moves forward until its tail starts after the border, with
/// as much of the inode before the border as slots allow. If the tail still crosses a border, the
/// inode starts at the first border.
fn place(at: u64, meta: u64, shape: &Shape) -> u64 {
    let one_block =
        |from: u64, len: u64| len == 0 || from / BLOCK_64 == (from + len - 1) / BLOCK_64;
    let (whole, tail) = (u64_from(shape.whole), u64_from(shape.tail));
    let border = at.next_multiple_of(BLOCK_64);
    if whole > 0 {
        return if one_block(at, whole) { at } else { border };
    }
    let start = at + meta;
    if one_block(start, tail) {
        return at;
    }
    let more = (BLOCK_64 - start % BLOCK_64).next_multiple_of(SLOT_64);
    if one_block(start + more, tail) {
        at + more
    } else {
        border
    }
}
