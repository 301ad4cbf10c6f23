//! SquashFS: the parts that have a parser of their own, and whole images.

use forerun_squashfs::fuzzing::{self, Parts};
use forerun_testkit::packed::packed_file;

use super::{Made, assert_located, named, one};
use crate::images::read_all;

/// Bytes of the longest superblock, that of 3.x.
const SUPERBLOCK: usize = 119;
/// Images of 1.x to 3.x.
const OLD: &str = "crates/formats/squashfs/tests/it/golden/old.tar.zst";

pub use fuzzing::{directories, inodes, superblock, xattrs};

/// Exercises the whole driver on an image, then reads the image as a user does.
pub fn walk(bytes: &[u8]) {
    assert_located(&fuzzing::walk(bytes));
    read_all("squashfs", bytes, fuzzing::limits());
}

/// Opens an image as damaged, and exercises what is salvaged.
pub fn salvage(bytes: &[u8]) {
    fuzzing::salvage(bytes);
}

/// Images, whole and without the last tables.
pub fn cut_images() -> Made {
    let seeds = images()?.into_iter();
    Ok(named(seeds.flat_map(|(name, image)| {
        let cut = image.iter().take(image.len() * 4 / 5).copied().collect();
        [(name.clone(), image), (format!("{name}-cut"), cut)]
    })))
}

pub fn images() -> Made {
    let old = [
        "gzip-1.0-little",
        "gzip-2.0-big",
        "gzip-3.0-little",
        "lzma_parameters-3.0-hsqs",
    ];
    let old = old.map(|name| (name, packed_file(OLD, name)));
    Ok(named(fuzzing::seeds()?.into_iter().chain(old)))
}

pub fn superblocks() -> Made {
    let seeds = images()?.into_iter();
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
