//! Metadata ranges of an image, for its map.

use std::ops::{ControlFlow, Range};

use forerun_vfs::{BlobId, Extent, FileType, Place, Region, Result};

use crate::address::{Address, Space};
use crate::image::{Image, map};
use crate::inode::Inode;
use crate::ondisk::{DEVICE_SLOT, SUPERBLOCK_AT};

/// Visits the superblock and the device table.
pub fn of_image(image: &Image, visit: &mut dyn FnMut(Region) -> ControlFlow<()>) {
    let superblock = &image.superblock;
    let devices = u64::from(superblock.device_slot) * DEVICE_SLOT;
    let devices_len = u64::from(superblock.devices) * DEVICE_SLOT;
    let regions = [
        ("superblock", SUPERBLOCK_AT..superblock.end()),
        ("devices", devices..devices + devices_len),
    ];
    for (name, range) in regions {
        if !range.is_empty() && visit(Region::metadata(name, range)).is_break() {
            break;
        }
    }
}

/// Visits the inode with its xattrs and index, and the data of a directory or symbolic link. Visits
/// nothing in the metabox, which is compressed as a whole.
pub fn of_inode(
    image: &Image,
    inode: &Inode,
    visit: &mut dyn FnMut(Region) -> ControlFlow<()>,
) -> Result<()> {
    let mut give = |name, range: Range<u64>| {
        if range.is_empty() {
            ControlFlow::Continue(())
        } else {
            visit(Region::metadata(name, range))
        }
    };
    if inode.at.space == Space::Image {
        let own: [(&str, Address, u64); 2] = [
            ("inodes", inode.at, inode.len()),
            ("extended attributes", inode.xattrs(), inode.xattr_len),
        ];
        for (name, at, len) in own {
            if give(name, at.offset..at.offset + len).is_break() {
                return Ok(());
            }
        }
        if give("indexes", map::index(image, inode)?).is_break() {
            return Ok(());
        }
    }
    let name = match inode.file_type {
        FileType::Directory => "directories",
        FileType::Symlink => "symbolic links",
        _ => return Ok(()),
    };
    map::map(image, inode, 0..inode.size, &mut |extent| {
        stored(&extent).map_or(ControlFlow::Continue(()), |range| give(name, range))
    })
}

/// Returns the image range that an extent occupies.
fn stored(extent: &Extent) -> Option<Range<u64>> {
    let len = extent.logical.end - extent.logical.start;
    match &extent.place {
        Place::Stored { blob, offset } if *blob == BlobId::IMAGE => Some(*offset..offset + len),
        Place::Encoded { block, .. } if block.blob == BlobId::IMAGE => Some(block.stored()),
        Place::Stored { .. } | Place::Encoded { .. } | Place::Zero | Place::Inline(_) => None,
    }
}
