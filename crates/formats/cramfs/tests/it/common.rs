//! A small image with every structure at a known offset, and the reference tools.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use forerun_cramfs::fuzzing::maker::{Blocks, Kind, Layout, Node};
use forerun_cramfs::{Cramfs, fuzzing};
use forerun_io::{Limits, MemorySource};
use forerun_testkit::{Keeps, require};

/// The properties that the format keeps. Group ids are truncated to 8 bits.
pub const KEEPS: Keeps = Keeps {
    times: false,
    hard_links: false,
    ..Keeps::EVERYTHING
};

/// Makes `image` of `tree` with mkfs.cramfs. Returns false if it is not installed.
#[must_use]
pub fn mkcramfs(tree: &Path, image: &Path, options: &[&str]) -> bool {
    let Some(program) = require::program("mkfs.cramfs") else {
        return false;
    };
    let mut command = Command::new(program);
    let output = command.args(options).arg(tree).arg(image).output().unwrap();
    assert!(output.status.success(), "{options:?}: {output:?}");
    true
}

/// Runs fsck.cramfs. Returns `None` if it is not installed.
pub fn fsck(image: &Path, options: &[String]) -> Option<Output> {
    let program = require::program("fsck.cramfs")?;
    let mut command = Command::new(program);
    Some(command.args(options).arg(image).output().unwrap())
}

pub fn open(image: &[u8]) -> Cramfs {
    Cramfs::open(Arc::new(MemorySource::new(image)), &Limits::default()).unwrap()
}

/// Offsets in the image of [`sample`].
pub const ROOT: usize = 64;
pub const DIR: usize = 76;
pub const FILE: usize = 92;
pub const LINK: usize = 108;
pub const INNER: usize = 124;
pub const INNER_TABLE: usize = 144;
pub const FILE_TABLE: usize = 172;
/// Number of blocks of the file: the first three are pages, the last has 8 bytes.
pub const FILE_BLOCKS: usize = 4;
pub const LINK_TABLE: usize = 12_528;

pub fn sample() -> Vec<u8> {
    sample_of(Layout::default(), Blocks::Compressed)
}

/// Creates the same image with flags in block pointers.
pub fn extended(ways: Blocks) -> Vec<u8> {
    sample_of(Layout::extended(), ways)
}

fn sample_of(layout: Layout, ways: Blocks) -> Vec<u8> {
    let inner = Node::file(b"inner", b"inner bytes");
    layout.image(&[
        Node::new(b"dir", Kind::Directory(vec![inner])),
        Node::new(b"file", Kind::File(vec![b'f'; 3 * 4096 + 8], ways)),
        Node::new(b"link", Kind::Symlink(b"dir/inner".to_vec())),
    ])
}

pub fn word(image: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(image[at..at + 4].try_into().unwrap())
}

pub fn set_word(image: &mut [u8], at: usize, word: u32) {
    image[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

/// Changes the sample, and corrects its checksum.
pub fn with(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut image = sample();
    change(&mut image);
    Layout::default().sum(&mut image);
    image
}

pub fn with_word(at: usize, word: u32) -> Vec<u8> {
    with(|image| set_word(image, at, word))
}

pub fn errors(image: &[u8]) -> Vec<String> {
    let errors = fuzzing::walk(image);
    errors.iter().map(ToString::to_string).collect()
}
