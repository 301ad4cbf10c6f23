//! What an image stores, as numbers: for programs that show the structures of the format.

use std::ops::{ControlFlow, Range};

use forerun_vfs::{NodeId, Result};

use crate::driver::Erofs;
use crate::error::Check;
use crate::image::{Chunks, map};
pub use crate::inode::DataLayout;

/// The fields of the superblock. They have their names in the format where they have one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SuperblockFacts {
    /// Features that readers may ignore, as bits.
    pub feature_compat: u32,
    pub feature_incompat: u32,
    /// log2 of the block size.
    pub blkszbits: u8,
    pub root_nid: u64,
    /// The number of inodes.
    pub inos: u64,
    /// When the image was made, in seconds.
    pub epoch: i64,
    /// The number of blocks.
    pub blocks: u64,
    /// The block in which inodes start.
    pub meta_blkaddr: u32,
    /// The block in which shared attributes start.
    pub xattr_blkaddr: u32,
    pub uuid: [u8; 16],
}

/// The fields of an inode that its metadata does not show.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InodeFacts {
    /// Bytes of the inode itself: 32 or 64.
    pub len: u64,
    /// How its data is stored.
    pub layout: DataLayout,
    /// Bytes of its own attributes.
    pub xattr_isize: u64,
    /// The blocks of compressed data.
    pub compressed_blocks: Option<u32>,
}

/// An extent of a file as the image has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredExtent {
    /// Bytes of the file, up to the end of the last block where whole blocks are stored.
    pub logical: Range<u64>,
    /// Bytes of the image or device; nothing for zeros and for what another inode holds.
    pub physical: Option<Range<u64>>,
    /// The device; 0 is the image.
    pub device: u16,
}

impl Erofs {
    /// Returns the fields of the superblock.
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

    /// Returns the fields of an inode.
    ///
    /// # Errors
    /// The errors of reading it.
    pub fn inode(&self, node: NodeId) -> Result<InodeFacts> {
        let inode = self.image.inode(node)?;
        Ok(InodeFacts {
            len: inode.xattrs().offset - inode.at.offset,
            layout: inode.layout,
            xattr_isize: inode.xattr_len,
            compressed_blocks: inode.layout.is_compressed().then_some(inode.word),
        })
    }

    /// Visits the extents of the data of a file, directory or link as the image has them.
    ///
    /// # Errors
    /// The errors of reading what describes them.
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
