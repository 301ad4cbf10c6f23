//! romfs: the start of an image, a header, and whole images.

use forerun_romfs::fuzzing;

use super::{Made, assert_located, named};
use crate::images::read_all;

/// Bytes that the parser of the superblock looks at.
const HEAD: usize = 512;
/// Bytes of a header with a name of 255 bytes.
const HEADER: usize = 272;

pub use fuzzing::{header, superblock};

/// Exercises the whole driver on an image, then reads the image as a user does.
pub fn walk(bytes: &[u8]) {
    assert_located(&fuzzing::walk(bytes));
    let image = fuzzing::with_checksum(bytes);
    read_all("romfs", &image, fuzzing::limits());
}

pub fn images() -> Made {
    Ok(named(fuzzing::seeds()?))
}

pub fn superblocks() -> Made {
    let seeds = fuzzing::seeds()?.into_iter();
    Ok(named(seeds.map(|(name, mut image)| {
        image.truncate(HEAD);
        (name, image)
    })))
}

pub fn headers() -> Made {
    let mut seeds = Vec::new();
    for (name, image) in fuzzing::seeds()? {
        for at in (0x20..image.len()).step_by(16).take(64) {
            let header = image[at..image.len().min(at + HEADER)].to_vec();
            seeds.push((format!("{name}-{at:#x}"), header));
        }
    }
    Ok(seeds)
}
