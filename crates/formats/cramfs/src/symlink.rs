//! Targets of symbolic links, which are stored like files.

use std::ops::ControlFlow;

use forerun_io::{u64_from, usize_from};
use forerun_vfs::{Extent, NodeId, Place, Result};

use crate::blocks::Table;
use crate::error::Check;
use crate::image::Image;
use crate::inode::Inode;

pub fn target(image: &Image, node: NodeId, inode: &Inode) -> Result<Vec<u8>> {
    let (size, limit) = (u64::from(inode.size), image.limits.symlink_len);
    if size == 0 || size > limit {
        return Err(Check::SymlinkLen { size, limit }.at(Some(node), node.0));
    }
    let mut extents = Vec::new();
    Table::new(image, node, inode)?.map(0..size, &mut |extent| {
        extents.push(extent);
        ControlFlow::Continue(())
    })?;
    let mut target = Vec::new();
    for extent in &extents {
        target.extend(bytes(image, node, extent)?);
    }
    if target.contains(&0) {
        return Err(Check::SymlinkNul.at(Some(node), inode.offset));
    }
    Ok(target)
}

/// Returns the bytes of a block, at most 4096.
fn bytes(image: &Image, node: NodeId, extent: &Extent) -> Result<Vec<u8>> {
    let len = extent.logical.end - extent.logical.start;
    match &extent.place {
        Place::Zero => Ok(vec![0; usize_from(len)]),
        Place::Stored { offset, .. } => image.read(*offset, len),
        Place::Inline(bytes) => Ok(bytes.to_vec()),
        Place::Encoded { block, .. } => {
            let stored = image.read(block.offset, u64::from(block.len))?;
            let mut out = vec![0; usize_from(u64::from(block.decoded_len.max()))];
            let decoded = block.decode(&stored, &mut out);
            let decoded = decoded
                .map_err(|source| Check::SymlinkDecode { source }.at(Some(node), block.offset))?;
            debug_assert_eq!(u64_from(decoded), len);
            Ok(out)
        }
    }
}
