//! Entry points of the fuzz targets, so that the same code runs in a plain test. Not part of the
//! API.

use std::sync::Arc;

use forerun_io::{MemorySource, u32_from, u64_from, usize_from};
use forerun_vfs::{Error, FileType, exercise};

use crate::Cramfs;
use crate::ondisk::{HOLES, INODE_LEN, SUPERBLOCK_LEN};
use crate::superblock::Superblock;

pub mod maker;

pub use forerun_vfs::exercise::limits;
use maker::{Blocks, Kind, Layout, Node};

/// Parses `bytes` as the start of sources of different lengths.
pub fn superblock(bytes: &[u8]) {
    for source_len in [u64_from(bytes.len()), u64::from(u32::MAX), u64::MAX] {
        if let Ok(superblock) = Superblock::parse(bytes, source_len) {
            assert!(superblock.end() <= superblock.image_len);
            assert!(superblock.image_len <= source_len);
            assert_eq!(superblock.root.kind, FileType::Directory);
            assert!(!superblock.name.contains(&0));
        }
    }
}

/// Uses `bytes` as the entries of the root, in both byte orders.
pub fn directory(bytes: &[u8]) -> Vec<Error> {
    let mut errors = Vec::new();
    for big_endian in [false, true] {
        let layout = Layout {
            big_endian,
            ..Layout::default()
        };
        let mut image = layout.image(&[]);
        // The size of the root is in 24 bits of its second word.
        let [.., high, middle, low] = u64_from(bytes.len()).to_be_bytes();
        let size = if big_endian {
            [high, middle, low]
        } else {
            [low, middle, high]
        };
        if let Some(field) = image.get_mut(68..71) {
            field.copy_from_slice(&size);
        }
        image.extend_from_slice(bytes);
        errors.extend(walk_with_size(&mut image, layout));
    }
    errors
}

/// Uses the first three bytes as the size of a file, and the others as its block pointers and
/// blocks. Pointers have flags.
pub fn blocks(bytes: &[u8]) -> Vec<Error> {
    let layout = Layout::extended();
    let mut image = layout.image(&[Node::file(b"file", b"")]);
    let (size, data) = bytes.split_at(bytes.len().min(3));
    let at = SUPERBLOCK_LEN + 4;
    if let Some(field) = image.get_mut(at..at + size.len()) {
        field.copy_from_slice(size);
    }
    let offset = u32::try_from(image.len() / 4).unwrap_or(0);
    // A name of one unit.
    let word = 1 | offset << 6;
    if let Some(field) = image.get_mut(at + 4..at + 8) {
        field.copy_from_slice(&word.to_le_bytes());
    }
    image.extend_from_slice(data);
    walk_with_size(&mut image, layout)
}

/// Walks an image whose length has changed.
fn walk_with_size(image: &mut [u8], layout: Layout) -> Vec<Error> {
    let len = u32_from(u64_from(image.len()));
    let len = if layout.big_endian {
        len.to_be_bytes()
    } else {
        len.to_le_bytes()
    };
    if let Some(field) = image.get_mut(4..8) {
        field.copy_from_slice(&len);
    }
    layout.sum(image);
    walk(image)
}

/// Opens `bytes` as an image and calls every method of the driver on every node. Returns the
/// errors, and the problems that `check` reports.
pub fn walk(bytes: &[u8]) -> Vec<Error> {
    let mut errors = Vec::new();
    // Without memory for indexes, each directory is read at each use.
    for index_bytes in [limits().dir_index_bytes, 0] {
        let mut limits = limits();
        limits.dir_index_bytes = index_bytes;
        match Cramfs::open(Arc::new(MemorySource::new(bytes)), &limits) {
            Ok(fs) => errors.extend(exercise::all(&fs, &limits)),
            Err(error) => errors.push(error),
        }
    }
    errors
}

/// Creates small images that together cover the whole format, as seeds.
#[must_use]
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let plain = Layout::default();
    let big = Layout {
        big_endian: true,
        ..Layout::extended()
    };
    let padded = Layout {
        padded: true,
        flags: plain.flags | HOLES,
        ..plain
    };
    let first = Layout { flags: 0, ..plain };
    let large: Vec<Node> = (100..400)
        .map(|n: u32| Node::file(format!("file{n}").as_bytes(), b"x"))
        .collect();
    let mut deep = Vec::new();
    for _ in 0..16 {
        deep = vec![Node::new(b"d", Kind::Directory(deep))];
    }
    vec![
        ("empty", plain.image(&[])),
        ("everything", plain.image(&everything(Blocks::Compressed))),
        ("extended", big.image(&everything(Blocks::Mixed))),
        ("padded", padded.image(&everything(Blocks::Compressed))),
        ("version1", first.image(&everything(Blocks::Compressed))),
        ("large", plain.image(&large)),
        ("deep", plain.image(&deep)),
    ]
}

/// Creates a seed for [`directory`]: the entries of a root, without their data.
#[must_use]
pub fn entries() -> Vec<u8> {
    let image = Layout::default().image(&everything(Blocks::Compressed));
    let len = image.get(68..70).and_then(|bytes| bytes.try_into().ok());
    let end = SUPERBLOCK_LEN + usize::from(len.map_or(0, u16::from_le_bytes));
    image[SUPERBLOCK_LEN..end].to_vec()
}

/// Creates a seed for [`blocks`]: a size, pointers of all kinds and their blocks.
#[must_use]
pub fn pointers() -> Vec<u8> {
    let mut bytes = vec![b'x'; 5 * 4096 + 7];
    bytes[8192..12288].fill(0);
    let file = Node::new(b"file", Kind::File(bytes.clone(), Blocks::Mixed));
    let image = Layout::extended().image(&[file]);
    let start = SUPERBLOCK_LEN + INODE_LEN + 4;
    let [low, middle, high, ..] = u64_from(bytes.len()).to_le_bytes();
    [&[low, middle, high], &image[start..]].concat()
}

/// Creates a tree with every kind of node, and names of all paddings.
#[must_use]
pub fn everything(ways: Blocks) -> Vec<Node> {
    let odd: Vec<u8> = (0..4096 * 5 + 9_u32)
        .map(|n| u8::try_from(n % 251).unwrap_or(0))
        .collect();
    let mut holey = odd.clone();
    for range in [0..4096, 8192..16384] {
        holey
            .get_mut(usize_from(range.start)..usize_from(range.end))
            .unwrap_or_default()
            .fill(0);
    }
    let dir = vec![
        Node::file(b"empty", b""),
        Node::new(b"odd", Kind::File(odd, ways)),
    ];
    vec![
        Node::new(b"block", Kind::Special(0o60_000, 0x10_082c)),
        Node::new(b"char", Kind::Special(0o20_000, 0x103)),
        Node::new(b"dir", Kind::Directory(dir)),
        Node::new(b"empty", Kind::Directory(Vec::new())),
        Node::new(b"fifo", Kind::Special(0o10_000, 0)),
        Node::new(b"holey", Kind::File(holey, ways)),
        Node::new(b"link", Kind::Symlink(b"dir/odd".to_vec())),
        Node::file(b"page", &[b'p'; 4096]),
        Node::new(b"socket", Kind::Special(0o140_000, 0)),
        Node::file(&[b'z'; 252], b"a name of 252 bytes"),
    ]
}
