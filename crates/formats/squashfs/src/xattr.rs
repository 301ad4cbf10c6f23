//! Extended attributes of inodes.

use forerun_vfs::{Error, NodeId, Result};

use crate::error::Check;
use crate::image::Image;
use crate::inode::Inode;
use crate::xattr_tables::Found;

/// Visits the xattrs of `inode`. Ignores xattrs with an unknown prefix, as Linux does.
pub fn visit(
    image: &Image,
    inode: &Inode,
    node: NodeId,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<()> {
    each(image, inode, node, &mut |found| match found {
        Found::Pair(name, value) => visit(name, value),
        Found::Unknown(_) => {}
    })
}

/// Reports the xattrs that [`visit`] ignores.
pub fn check(
    image: &Image,
    inode: &Inode,
    node: NodeId,
    report: &mut dyn FnMut(Error),
) -> Result<()> {
    each(image, inode, node, &mut |found| {
        if let Found::Unknown(error) = found {
            report(error);
        }
    })
}

fn each(
    image: &Image,
    inode: &Inode,
    node: NodeId,
    visit: &mut dyn FnMut(Found<'_>),
) -> Result<()> {
    let Some(index) = inode.xattrs else {
        return Ok(());
    };
    match &image.xattrs {
        Some(xattrs) => {
            let limit = image.limits.xattr_bytes;
            xattrs.each(&image.blocks, index, node, limit, visit)
        }
        // Opening the salvage reported the missing table.
        None if image.salvage.is_some() => Ok(()),
        None => Err(Check::TableIndex {
            table: "xattr table",
            index: u64::from(index),
            count: 0,
        }
        .at(Some(node), image.superblock.inode_table)),
    }
}
