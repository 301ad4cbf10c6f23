//! The parts of an image that are not file data.

use forerun_vfs::Region;

use crate::superblock::{HEAD, Superblock};

/// Returns the regions of an image. The tables after the directories count as part of the
/// directories: finding where each begins would need reads.
pub fn regions(superblock: &Superblock) -> Vec<Region> {
    let (inodes, directories) = (superblock.inode_table, superblock.directory_table);
    let all = [
        Region::metadata("superblock", 0..HEAD.min(inodes)),
        Region::metadata("inodes", inodes..directories),
        Region::metadata("directories", directories..superblock.bytes_used),
    ];
    let sound = |region: &Region| region.range.start < region.range.end;
    all.into_iter().filter(sound).collect()
}
