//! EROFS: the parts that have a parser of their own, and whole images.

use std::fs;
use std::io;

use forerun_erofs::fuzzing;

use super::{Made, assert_located, named, one};
use crate::images::read_all;

/// Where the superblock begins, and where it ends.
const SUPERBLOCK: std::ops::Range<usize> = 1024..1152;
/// The byte of the superblock whose lowest bit says that there is a checksum.
const HAS_CHECKSUM: usize = SUPERBLOCK.start + 8;

pub use fuzzing::{directories, inodes, superblock, xattrs};

/// Exercises the whole driver on an image, then reads the image as a user does.
pub fn walk(bytes: &[u8]) {
    assert_located(&fuzzing::walk(bytes));
    read_all("erofs", bytes, fuzzing::limits());
}

pub fn images() -> Made {
    let mut seeds = named(fuzzing::seeds()?);
    for (name, mut image) in golden()? {
        // With a checksum, no change to the first block would get past it.
        image[HAS_CHECKSUM] &= !1;
        seeds.push((name, image));
    }
    Ok(seeds)
}

/// Reads the EROFS images that are kept for tests: they have features that the writer does not use.
fn golden() -> io::Result<Vec<(String, Vec<u8>)>> {
    let dir = forerun_testkit::workspace_root().join("crates/formats/erofs/tests/it/golden");
    let mut images = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "img") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            images.push((name.into_owned(), fs::read(&path)?));
        }
    }
    Ok(images)
}

pub fn superblocks() -> Made {
    let seeds = fuzzing::seeds()?.into_iter();
    Ok(named(
        seeds.map(|(name, image)| (name, image[SUPERBLOCK].to_vec())),
    ))
}

pub fn inode_seeds() -> Made {
    one(&fuzzing::image()[fuzzing::PIECES.0])
}

pub fn directory_seeds() -> Made {
    one(&fuzzing::image()[fuzzing::PIECES.1])
}

pub fn xattr_seeds() -> Made {
    one(&fuzzing::image()[fuzzing::PIECES.2])
}
