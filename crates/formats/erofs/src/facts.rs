//! Stored structures as numbers, for programs that display the format.

use std::ops::{ControlFlow, Range};

use forerun_vfs::{NodeId, Result};

use crate::device::Device;
use crate::driver::Erofs;
use crate::error::Check;
use crate::image::{Chunks, map};
pub use crate::inode::DataLayout;

/// The superblock fields, under the format's names where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SuperblockFacts {
    /// Bits of features that readers may ignore.
    pub feature_compat: u32,
    pub feature_incompat: u32,
    /// log2 of the block size.
    pub blkszbits: u8,
    pub root_nid: u64,
    pub inos: u64,
    /// Creation time of the image in seconds.
    pub epoch: i64,
    pub blocks: u64,
    /// The block that nids are counted from.
    pub meta_blkaddr: u32,
    /// The block that shared xattr ids are counted from.
    pub xattr_blkaddr: u32,
    pub uuid: [u8; 16],
}

/// Fields of an inode that its `Metadata` does not show.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InodeFacts {
    /// Length of the inode itself: 32 or 64 bytes.
    pub len: u64,
    pub layout: DataLayout,
    /// Length of the xattrs stored after the inode.
    pub xattr_isize: u64,
    pub compressed_blocks: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredExtent {
    /// Range in the file. Where whole blocks are stored, it ends at the end of the last block.
    pub logical: Range<u64>,
    /// Range in the image or device; `None` for zeros and for data in another inode.
    pub physical: Option<Range<u64>>,
    /// Number of the device; 0 is the image.
    pub device: u16,
}

impl Erofs {
    #[must_use]
    pub const fn superblock(&self) -> SuperblockFacts {
        let superblock = &self.image.superblock;
        SuperblockFacts {
            feature_compat: superblock.feature_compat,
            feature_incompat: superblock.feature_incompat,
            blkszbits: superblock.block_bits,
            root_nid: superblock.root,
            inos: superblock.inodes,
            epoch: superblock.epoch,
            blocks: superblock.blocks,
            meta_blkaddr: superblock.meta_block,
            xattr_blkaddr: superblock.xattr_block,
            uuid: superblock.uuid,
        }
    }

    #[must_use]
    pub fn devices(&self) -> &[Device] {
        self.image.devices.list()
    }

    pub fn inode(&self, node: NodeId) -> Result<InodeFacts> {
        let inode = self.image.inode(node)?;
        Ok(InodeFacts {
            len: inode.xattrs().offset - inode.at.offset,
            layout: inode.layout,
            xattr_isize: inode.xattr_len,
            compressed_blocks: inode.layout.is_compressed().then_some(inode.word),
        })
    }

    /// Visits the extents of a file, directory or symbolic link as the image stores them.
    pub fn stored_extents(
        &self,
        node: NodeId,
        visit: &mut dyn FnMut(StoredExtent) -> ControlFlow<()>,
    ) -> Result<()> {
        let image = &self.image;
        let inode = image.inode(node)?;
        let block = image.superblock.block_size();
        let whole = inode.size.next_multiple_of(block);
        let (device, at) = (0, inode.start_block());
        let at = at.map(|at| image.superblock.block_at(at));
        let placed = |start: u64, len: u64| match start.checked_add(len) {
            Some(end) => Ok(start..end),
            None => {
                let (end, image) = (u64::MAX, image.source.len());
                let what = "data";
                let check = Check::Outside {
                    what,
                    start,
                    end,
                    image,
                };
                Err(check.at(Some(node), inode.at.offset))
            }
        };
        let mut flat = |logical: Range<u64>, start: Option<u64>| {
            if logical.is_empty() {
                return Ok(ControlFlow::Continue(()));
            }
            let len = logical.end - logical.start;
            let physical = start.map(|start| placed(start, len)).transpose()?;
            Ok(visit(StoredExtent {
                logical,
                physical,
                device,
            }))
        };
        match inode.layout {
            DataLayout::Plain => return flat(0..whole, at).map(|_| ()),
            DataLayout::Inline => {
                let behind = whole.saturating_sub(block);
                if flat(0..behind, at)?.is_continue() {
                    return flat(behind..inode.size, Some(inode.end().offset)).map(|_| ());
                }
            }
            DataLayout::CompressedFull | DataLayout::CompressedCompact => {
                map::stored_extents(image, &inode, &mut |logical, physical| {
                    visit(StoredExtent {
                        logical,
                        physical,
                        device,
                    })
                })?;
            }
            DataLayout::Chunks => {
                let chunks = Chunks::of(image, &inode)?;
                let (mut index, mut start) = (0, 0);
                while index < chunks.count {
                    for entry in chunks.read(image, &inode, index, chunks.count)? {
                        let end = whole.min(start + (1 << chunks.bits));
                        let at = entry.block.map(|block| image.superblock.block_at(block));
                        let physical = at.map(|at| placed(at, end - start)).transpose()?;
                        let extent = StoredExtent {
                            logical: start..end,
                            physical,
                            device: entry.device,
                        };
                        if visit(extent).is_break() {
                            return Ok(());
                        }
                        (index, start) = (index + 1, end);
                    }
                }
            }
        }
        Ok(())
    }
}
