//! Entry points for fuzz targets, and seed images. Not for users.
//!
//! Plain functions over bytes, so that ordinary tests can run the same code over mutated seeds.
//! They panic only if the driver breaks its contract.

mod parts;

use std::ops::Range;
use std::sync::Arc;

use forerun_build::{BuildError, Content, NewNode, NodeKind, Tree};
use forerun_codec::FillEncoding;
use forerun_io::{MemorySource, Observer};
use forerun_vfs::{Error, NodeId, OpenWith, Result, exercise};

use crate::driver::Erofs;
use crate::superblock::{self, Superblock};
use crate::write::{Compression, ErofsOptions, write};

pub use forerun_vfs::exercise::limits;
pub use parts::{
    DATA, LEN, META, at, image, nid, with_inodes, with_root, with_split_chunk, with_xattrs,
};

/// Ranges of [`image`]: the inodes after the root, the root's entries, the xattrs of an inode.
pub const PIECES: (Range<usize>, Range<usize>, Range<usize>) = (
    META + 256..DATA,
    META + 64..META + 242,
    META + 672..META + 700,
);

/// Parses `bytes` as the part of an image from its superblock on.
pub fn superblock(bytes: &[u8]) {
    let head = [&[0; 1024], bytes].concat();
    for source_len in [
        forerun_io::u64_from(head.len()),
        u64::from(u32::MAX),
        u64::MAX,
    ] {
        if let Ok(superblock) = Superblock::parse(&head, source_len) {
            assert!((512..=65_536).contains(&superblock.block_size()));
            assert!(superblock.end() <= source_len);
        }
    }
    let _sum = superblock::checksum(bytes);
    let mut whole = image();
    for (out, byte) in whole.iter_mut().skip(1024).zip(bytes.iter().take(128)) {
        *out = *byte;
    }
    walk(&whole);
}

pub fn inodes(bytes: &[u8]) {
    let Ok(fs) = open(with_inodes(bytes)) else {
        return;
    };
    for node in nid::CHUNKS..nid::CHUNKS + 32 {
        let _outcome = exercise::node(&fs, NodeId(node), &limits());
    }
}

pub fn directories(bytes: &[u8]) {
    walk(&with_root(bytes));
}

pub fn xattrs(bytes: &[u8]) {
    if let Ok(fs) = open(with_xattrs(bytes)) {
        let _outcome = exercise::node(&fs, NodeId(nid::XATTRS), &limits());
    }
}

/// Opens `bytes` as an image and calls every driver method on every node. Returns the errors, and
/// the problems that `check` reports.
pub fn walk(bytes: &[u8]) -> Vec<Error> {
    exercise::walk(&crate::FORMAT, Arc::new(MemorySource::new(bytes)))
}

fn open(bytes: Vec<u8>) -> Result<Erofs> {
    let mut with = OpenWith::new(Arc::new(MemorySource::new(bytes)));
    with.limits = limits();
    Erofs::open(with)
}

/// Creates small images that together cover the whole format, as seeds.
pub fn seeds() -> Result<Vec<(&'static str, Vec<u8>)>, BuildError> {
    let mut sound = image();
    sound.splice(1024 + 8..1024 + 12, 0x13_u32.to_le_bytes());
    let sum = superblock::checksum(sound.get(1024..1536).unwrap_or_default());
    sound.splice(1024 + 4..1024 + 8, sum.to_le_bytes());
    let mut seeds = vec![
        ("parts", image()),
        ("checksum", sound),
        ("split", with_split_chunk(2, 3)),
    ];
    for (name, options) in written() {
        let mut image = Vec::new();
        let observer = Arc::new(Observer::default());
        write(&sample()?, &options, &mut image, &observer)?;
        // Clear the checksum flag; the checksum would reject every other change to the first block.
        if let Some(features) = image.get_mut(1024 + 8) {
            *features &= !1;
        }
        seeds.push((name, image));
    }
    Ok(seeds)
}

/// Returns writer options that together cover every index layout and codec.
fn written() -> Vec<(&'static str, ErofsOptions)> {
    let options = |compression| ErofsOptions {
        block_size: 512,
        compression,
        threads: 1,
        ..ErofsOptions::default()
    };
    let with = |encoding| Compression {
        cluster_size: 512,
        ..Compression::new(encoding)
    };
    let big = Compression {
        cluster_size: 2048,
        inline_tails: true,
        ..with(FillEncoding::Deflate { level: 6 })
    };
    let shared = Compression {
        share_extents: true,
        ..with(FillEncoding::Zstd {
            level: 3,
            window_log: 15,
        })
    };
    let lzma = FillEncoding::MicroLzma {
        level: 1,
        dictionary: 4096,
    };
    let chunks = ErofsOptions {
        chunk_size: Some(1024),
        ..options(None)
    };
    vec![
        ("lz4", options(Some(with(FillEncoding::Lz4)))),
        ("deflate", options(Some(big))),
        ("zstd", options(Some(shared))),
        ("lzma", options(Some(with(lzma)))),
        ("chunks", chunks),
    ]
}

fn sample() -> Result<Tree, BuildError> {
    let mut tree = Tree::default();
    let dir = tree.add(Tree::ROOT, b"dir", NewNode::directory())?;
    for (name, len) in [(&b"a"[..], 9000), (b"b", 9000), (b"c", 700), (b"d", 40)] {
        let bytes: Vec<u8> = (0..len)
            .map(|at: usize| b"abcdefgh"[(at % 7) & (at / 9 % 8)])
            .collect();
        let kind = NodeKind::File {
            len: forerun_io::u64_from(len),
            content: Content::Bytes(bytes.into()),
        };
        let mut node = NewNode::new(kind, 0o644);
        node.xattrs.insert(b"user.name".to_vec(), name.to_vec());
        tree.add(dir, name, node)?;
    }
    let link = NodeKind::Symlink(b"dir/a".to_vec());
    tree.add(Tree::ROOT, b"link", NewNode::new(link, 0o777))?;
    Ok(tree)
}
