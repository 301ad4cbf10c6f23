//! The parts of an image that are not data.

use forerun_vfs::Region;

use crate::superblock::{HEAD, Superblock};

/// Returns the regions of an image. The tables behind the directories are one with these: where each
/// begins stands in a pointer at its end, which would have to be read.
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
