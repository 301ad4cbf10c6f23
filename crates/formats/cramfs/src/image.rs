//! Reads inodes and other metadata of an image.

use std::sync::Arc;

use forerun_io::{Limits, ReadAt, u64_from, usize_from};
use forerun_vfs::{Error, NodeId, Result};

use crate::inode::Inode;
use crate::ondisk::{INODE_LEN, UNIT};
use crate::superblock::{HEAD_LEN, Superblock};

pub struct Image {
    source: Arc<dyn ReadAt>,
    pub superblock: Superblock,
    pub limits: Limits,
    /// Whether the image is shorter than its superblock says, which only a rescue accepts.
    pub is_cut: bool,
}

impl Image {
    /// Reads and checks the superblock. With `rescue`, the image may be truncated, and ends where
    /// the source ends.
    pub fn open(source: Arc<dyn ReadAt>, limits: &Limits, rescue: bool) -> Result<Self> {
        let head = read(&*source, 0, source.len().min(HEAD_LEN))?;
        let len = source.len();
        let most = if rescue { u64::MAX } else { len };
        let mut superblock = Superblock::parse(&head, most)?;
        let is_cut = superblock.is_version_2() && superblock.image_len > len;
        superblock.image_len = superblock.image_len.min(len);
        Ok(Self {
            is_cut,
            source,
            superblock,
            limits: limits.clone(),
        })
    }

    /// Reads the inode of a node. The node's id is the offset of its inode. Fails with `StaleNode`
    /// for an id at which no inode can be.
    pub fn inode(&self, node: NodeId) -> Result<Inode> {
        let superblock = &self.superblock;
        if node == superblock.root_node() {
            return Ok(superblock.root);
        }
        let len = u64_from(INODE_LEN);
        let is_inside = node.0 >= superblock.end() && self.contains(node.0, len);
        if !is_inside || !node.0.is_multiple_of(UNIT) {
            return Err(Error::StaleNode(node));
        }
        let bytes = self.read(node.0, len)?;
        Inode::parse(&bytes, superblock.order).map_err(|check| check.at(Some(node), node.0))
    }

    pub fn contains(&self, start: u64, len: u64) -> bool {
        let end = start.checked_add(len);
        end.is_some_and(|end| end <= self.superblock.image_len)
    }

    /// Reads a range of the image. The caller must have checked it against the image and bounded
    /// its length.
    pub fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        read(&*self.source, offset, len)
    }
}

fn read(source: &dyn ReadAt, offset: u64, len: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize_from(len)];
    source
        .read_exact_at(offset, &mut bytes)
        .map_err(|error| Error::io(offset, bytes.len(), error))?;
    Ok(bytes)
}
