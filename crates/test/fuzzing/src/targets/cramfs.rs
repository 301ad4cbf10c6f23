//! cramfs: the start of an image, the entries of a directory, the blocks of a file, and whole images.

use forerun_cramfs::fuzzing;

use super::{Made, assert_located, named, one};
use crate::images::read_all;

/// Bytes that the parser of the superblock looks at.
const HEAD: usize = 588;

pub use fuzzing::superblock;

pub fn directory(bytes: &[u8]) {
    assert_located(&fuzzing::directory(bytes));
}

pub fn blocks(bytes: &[u8]) {
    assert_located(&fuzzing::blocks(bytes));
}

/// Exercises the whole driver on an image, then reads the image as a user does.
pub fn walk(bytes: &[u8]) {
    assert_located(&fuzzing::walk(bytes));
    read_all("cramfs", bytes, fuzzing::limits());
}

pub fn images() -> Made {
    Ok(named(fuzzing::seeds()))
}

pub fn superblocks() -> Made {
    let seeds = fuzzing::seeds().into_iter();
    Ok(named(seeds.map(|(name, mut image)| {
        image.truncate(HEAD);
        (name, image)
    })))
}

pub fn directory_seeds() -> Made {
    one(fuzzing::entries())
}

pub fn block_seeds() -> Made {
    one(fuzzing::pointers())
}
