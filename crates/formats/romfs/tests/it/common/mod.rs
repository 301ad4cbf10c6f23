//! A small image with every header at a known offset, and a function that calls every operation.

use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_build::{Content, NewNode, NodeKind, Tree};
use forerun_io::{Limits, MemorySource, Observer, ReadAt};
use forerun_romfs::{Romfs, RomfsOptions, write};
use forerun_vfs::{Error, FileSystem, FileType, NodeId, Walk};

/// Offsets in the image of [`sample`].
pub const ROOT: usize = 0x20;
pub const DOTS: usize = 0x40;
pub const DIR: usize = 0x60;
pub const DIR_DOT: usize = 0x80;
pub const INNER: usize = 0xC0;
pub const FILE: usize = 0xF0;
pub const HARD: usize = 0x120;
pub const LINK: usize = 0x140;

/// Creates an image with `dir/inner`, `file`, `hard` (a link to `file`) and `link`.
pub fn sample() -> Vec<u8> {
    let mut tree = Tree::default();
    let file = |bytes: &'static [u8]| {
        let kind = NodeKind::File {
            len: bytes.len() as u64,
            content: Content::Bytes(bytes.into()),
        };
        NewNode::new(kind, 0o644)
    };
    let dir = tree.add(Tree::ROOT, b"dir", NewNode::directory()).unwrap();
    tree.add(dir, b"inner", file(b"inner bytes")).unwrap();
    let shared = tree.add(Tree::ROOT, b"file", file(b"file bytes")).unwrap();
    tree.link(Tree::ROOT, b"hard", shared).unwrap();
    let target = NodeKind::Symlink(b"dir/inner".to_vec());
    tree.add(Tree::ROOT, b"link", NewNode::new(target, 0o777))
        .unwrap();
    let mut out = Vec::new();
    write(
        &tree,
        &RomfsOptions::default(),
        &mut out,
        &Arc::new(Observer::default()),
    )
    .unwrap();
    out
}

/// Changes a word of a header, and corrects the superblock's checksum.
pub fn with_word(offset: usize, word: u32) -> Vec<u8> {
    with(|image| image[offset..offset + 4].copy_from_slice(&word.to_be_bytes()))
}

pub fn with(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut image = sample();
    change(&mut image);
    fix_checksum(&mut image);
    image
}

pub fn fix_checksum(image: &mut [u8]) {
    image[12..16].fill(0);
    let size = u32::from_be_bytes(image[8..12].try_into().unwrap()) as usize;
    let covered = image.len().min(512).min(size);
    let sum = sum(&image[..covered]).wrapping_neg();
    image[12..16].copy_from_slice(&sum.to_be_bytes());
}

pub fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(4).map(|bytes| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        u32::from_be_bytes(word)
    });
    words.fold(0, u32::wrapping_add)
}

/// Calls every operation on an image, in bounded time. Returns the errors.
pub fn use_it(source: Arc<dyn ReadAt>) -> Vec<Error> {
    let limits = Limits::default();
    let romfs = match Romfs::open(source, &limits) {
        Ok(romfs) => romfs,
        Err(error) => return vec![error],
    };
    let mut errors = Vec::new();
    let mut met = 0;
    for entry in Walk::new(&romfs, romfs.root(), &limits) {
        met += 1;
        assert!(met < 200, "a walk of a small image must end");
        match entry {
            Ok(entry) => {
                errors.extend(entry.metadata.err());
                errors.extend(use_node(&romfs, entry.node).err());
                errors.extend(romfs.check(Some(entry.node), &mut |_| ()).err());
            }
            Err(failed) => errors.push(failed.error),
        }
    }
    errors.extend(romfs.check(None, &mut |_| ()).err());
    errors
}

pub fn use_node(romfs: &Romfs, node: NodeId) -> Result<(), Error> {
    let len = romfs.volume().image_len;
    romfs.describe(Some(node))?;
    match romfs.metadata(node)?.kind {
        FileType::Directory => romfs
            .lookup(node, b"no such name")
            .map(|found| assert!(found.is_none())),
        FileType::Symlink => romfs
            .read_link(node)
            .map(|target| assert!(!target.is_empty())),
        FileType::Regular => romfs.map(node, 0..u64::MAX, &mut |extent| {
            assert!(extent.logical.end <= len, "extents stay inside the image");
            ControlFlow::Continue(())
        }),
        _ => Ok(()),
    }
}

pub fn source(image: Vec<u8>) -> Arc<dyn ReadAt> {
    Arc::new(MemorySource::new(image))
}
