//! An image with every field at a known offset, and ways to change it.

use std::sync::Arc;

use forerun_io::MemorySource;
use forerun_squashfs::Squashfs;
use forerun_squashfs::fuzzing::Parts;
use forerun_testkit::packed;
use forerun_vfs::{OpenWith, Result};

/// Offsets in the sample image of the first byte of each metadata block, and of the structures in
/// them.
pub const DATA: usize = 96;
pub const INODES: usize = 148;
pub const ROOT: usize = 148;
pub const FILE: usize = 188;
pub const DIR: usize = 224;
pub const LINK: usize = 281;
pub const NULL: usize = 311;
pub const TAIL: usize = 335;
pub const INNER: usize = 395;
pub const LISTINGS: usize = 429;
pub const ROOT_RUN: usize = 429;
pub const DATA_ENTRY: usize = 441;
pub const DIR_ENTRY: usize = 453;
pub const LINK_ENTRY: usize = 464;
pub const NULL_ENTRY: usize = 476;
pub const DIR_RUN: usize = 500;
pub const INNER_ENTRY: usize = 512;
pub const FRAGMENTS: usize = 527;
pub const FRAGMENT_POINTER: usize = 543;
pub const EXPORT: usize = 553;
pub const EXPORT_POINTER: usize = 609;
pub const IDS: usize = 619;
pub const ID_POINTER: usize = 627;
pub const PAIRS: usize = 637;
pub const SECOND_PAIR: usize = 651;
pub const SETS: usize = 670;
pub const XATTR_HEAD: usize = 686;
pub const XATTR_POINTER: usize = 702;
pub const END: usize = 710;

/// Images of 1.x to 3.x from golden/old.tar.zst; no current program makes them. They use gzip and
/// each header of vendors' LZMA, in both byte orders, and include variants: a byte 0xff after
/// metadata block headers (`marker`), uncompressed metadata (`plain`), other magic numbers, and
/// LZMA properties that liblzma rejects. Each has `dir` with the empty file `inner`, `fifo`,
/// `file`, `link`, `null` and `sock`. `file` has a compressed block, an uncompressed one, and an
/// end that is a fragment since 2.x.
pub fn old_images() -> Vec<(String, Vec<u8>)> {
    packed::unpack(include_bytes!("../golden/old.tar.zst")).unwrap()
}

pub fn old(name: &str) -> Vec<u8> {
    let mut images = old_images().into_iter();
    images.find(|(found, _)| found == name).unwrap().1
}

pub fn sample() -> Vec<u8> {
    Parts::everything().image()
}

pub fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut image = sample();
    image[at..at + bytes.len()].copy_from_slice(bytes);
    image
}

pub fn with_u16(at: usize, value: u16) -> Vec<u8> {
    with(at, &value.to_le_bytes())
}

pub fn with_u32(at: usize, value: u32) -> Vec<u8> {
    with(at, &value.to_le_bytes())
}

pub fn with_u64(at: usize, value: u64) -> Vec<u8> {
    with(at, &value.to_le_bytes())
}

pub fn open(image: Vec<u8>) -> Result<Squashfs> {
    Squashfs::open(OpenWith::new(Arc::new(MemorySource::new(image))))
}

/// Returns the offset of the extended inode of a file of `size` bytes in uncompressed inodes.
pub fn find_extended_file(inodes: &[u8], size: usize) -> usize {
    let size = (size as u64).to_le_bytes();
    let is_it = |at: &usize| inodes[*at..].starts_with(&[9, 0]) && inodes[at + 24..][..8] == size;
    (0..inodes.len() - 64).find(is_it).unwrap()
}
