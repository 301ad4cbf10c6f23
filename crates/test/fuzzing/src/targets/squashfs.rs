//! SquashFS: the parts that have a parser of their own, and whole images.

use forerun_squashfs::fuzzing::{self, Parts};

use super::{Made, named, one};
use crate::images::read_all;

/// Bytes of the longest superblock, that of 3.x.
const SUPERBLOCK: usize = 119;

pub use fuzzing::{directories, inodes, superblock, xattrs};

/// Exercises the whole driver on an image, then reads the image as a user does.
pub fn walk(bytes: &[u8]) {
    let _errors = fuzzing::walk(bytes);
    read_all("squashfs", bytes, fuzzing::limits());
}

/// Opens an image as damaged, and exercises what is salvaged.
pub fn salvage(bytes: &[u8]) {
    fuzzing::salvage(bytes);
}

/// Images, whole and without the last tables.
pub fn cut_images() -> Made {
    let seeds = fuzzing::seeds()?.into_iter();
    Ok(named(seeds.flat_map(|(name, image)| {
        let cut = image.iter().take(image.len() * 4 / 5).copied().collect();
        [(name, image), (name, cut)]
    })))
}

pub fn images() -> Made {
    Ok(named(fuzzing::seeds()?))
}

pub fn superblocks() -> Made {
    let seeds = fuzzing::seeds()?.into_iter();
    Ok(named(seeds.map(|(name, mut image)| {
        image.truncate(SUPERBLOCK);
        (name, image)
    })))
}

pub fn inode_seeds() -> Made {
    one(Parts::everything().inodes)
}

pub fn directory_seeds() -> Made {
    one(Parts::everything().listings)
}

pub fn xattr_seeds() -> Made {
    let parts = Parts::everything();
    one([parts.sets, parts.pairs].concat())
}
