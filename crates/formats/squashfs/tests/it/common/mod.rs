//! An image whose every field is at a known place, and ways to change it.

use std::sync::Arc;

use forerun_io::MemorySource;
use forerun_squashfs::Squashfs;
use forerun_squashfs::fuzzing::Parts;
use forerun_testkit::packed;
use forerun_vfs::{OpenWith, Result};

/// Offsets in the image below: of each metadata block's first byte behind its header, and of each
/// structure in it.
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

/// Images of 1.x to 3.x, which no program at hand makes, as golden/old.tar.zst keeps them: of gzip and of
/// each header of vendors' LZMA, in both byte orders, with a byte 0xff behind headers of metadata (`marker`),
/// with metadata stored as it is (`plain`), with other magic numbers, and with properties of LZMA that
/// liblzma refuses. Each has `dir` with the empty file `inner`, `fifo`, `file`, `link`, `null` and `sock`.
/// `contents` are those of `file`: a block that is encoded, one that is not, and an end that is in a
/// fragment from 2.x on.
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

/// Returns the sample with bytes changed.
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

/// Returns the place of the extended inode of a file of `size` bytes, in inodes that are stored as they are.
pub fn find_extended_file(inodes: &[u8], size: usize) -> usize {
    let size = (size as u64).to_le_bytes();
    let is_it = |at: &usize| inodes[*at..].starts_with(&[9, 0]) && inodes[at + 24..][..8] == size;
    (0..inodes.len() - 64).find(is_it).unwrap()
}
