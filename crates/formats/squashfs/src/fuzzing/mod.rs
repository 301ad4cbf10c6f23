//! Entry points for fuzz targets, which ordinary tests call too. Not part of the API.

use std::collections::BTreeMap;
use std::sync::Arc;

use forerun_build::{BuildError, Content, NewNode, NodeKind, Tree};
use forerun_codec::Encoding;
use forerun_io::{MemorySource, Observer, u32_from, u64_from};
use forerun_vfs::{Device, Error, NodeId, OpenWith, Result, exercise};

use crate::Squashfs;
use crate::superblock::Superblock;
use crate::write::{Fragments, SquashfsOptions, write};

mod parts;

pub use forerun_vfs::exercise::limits;
pub use parts::{Parts, inode, set};

/// Parses `bytes` as a superblock, for sources of different lengths.
pub fn superblock(bytes: &[u8]) {
    for source_len in [u64_from(bytes.len()), u64::from(u32::MAX), u64::MAX] {
        if let Ok(superblock) = Superblock::parse(bytes, source_len) {
            assert!(superblock.bytes_used <= source_len);
            assert!(superblock.inode_table < superblock.directory_table);
            assert!(superblock.directory_table < superblock.end_of_directories());
            assert!(superblock.end_of_directories() <= superblock.bytes_used);
        }
    }
}

/// Parses `bytes` as inodes; the root has an entry for each even offset.
pub fn inodes(bytes: &[u8]) {
    let mut parts = Parts::default();
    let first = parts.inodes.len();
    parts.inodes.extend_from_slice(bytes);
    let Ok(fs) = open(parts.image().into()) else {
        return;
    };
    let last = bytes.len().min(2048);
    for at in (first..first + last).step_by(2) {
        let _outcome = exercise::node(&fs, NodeId(u64_from(at)), &limits());
    }
}

/// Parses `bytes` as the root's listing. Entries point to the root itself, so that a walk must
/// detect the loop, or to nothing.
pub fn directories(bytes: &[u8]) {
    let parts = Parts {
        inodes: inode::root(u32_from(u64_from(bytes.len()))),
        listings: bytes.to_vec(),
        ..Parts::default()
    };
    walk(&parts.image());
}

/// Parses the first 16 bytes as an xattr set, and the rest as names and values.
pub fn xattrs(bytes: &[u8]) {
    let (head, pairs) = bytes.split_at(bytes.len().min(16));
    let len = u32_from(u64_from(pairs.len()));
    for head in [head.to_vec(), set(0, u32::from(u16::MAX), len)] {
        let mut parts = Parts {
            pairs: pairs.to_vec(),
            sets: head,
            ..Parts::default()
        };
        let at = parts.inodes.len();
        parts.inodes.extend(inode::fifo_with_xattrs(0));
        if let Ok(fs) = open(parts.image().into()) {
            let _outcome = exercise::node(&fs, NodeId(u64_from(at)), &limits());
        }
    }
}

/// Opens `bytes` as an image and calls every driver method on every node. Returns the errors, and
/// the problems that `check` reports.
pub fn walk(bytes: &[u8]) -> Vec<Error> {
    exercise::walk(&crate::FORMAT, Arc::new(MemorySource::new(bytes)))
}

/// Opens `bytes` for a salvage, and calls every driver method on every node found.
pub fn salvage(bytes: &[u8]) {
    let mut with = OpenWith::new(Arc::new(MemorySource::new(bytes)));
    with.limits = limits();
    if let Ok(fs) = crate::salvage::open(with) {
        let _errors = exercise::all(&fs, &limits());
    }
}

fn open(bytes: Arc<[u8]>) -> Result<Squashfs> {
    let mut with = OpenWith::new(Arc::new(MemorySource::new(bytes)));
    with.limits = limits();
    Squashfs::open(with)
}

/// Creates small images that together cover the whole format, as seeds.
pub fn seeds() -> Result<Vec<(&'static str, Vec<u8>)>, BuildError> {
    let image = |tree: &Tree, options: SquashfsOptions| {
        let options = SquashfsOptions {
            block_size: 4096,
            pad: false,
            threads: 1,
            ..options
        };
        let mut out = Vec::new();
        write(tree, &options, &mut out, &Arc::new(Observer::default())).map(|_| out)
    };
    let plain = SquashfsOptions::default;
    let with = |fragments| SquashfsOptions {
        fragments,
        ..plain()
    };
    let lz4 = SquashfsOptions {
        encoding: Encoding::Lz4 { high: false },
        ..plain()
    };
    let everything = everything()?;
    let mut large = Tree::default();
    for n in 0..300 {
        large.add(Tree::ROOT, format!("file{n}").as_bytes(), file(b"x"))?;
    }
    let mut deep = Tree::default();
    let mut dir = Tree::ROOT;
    for _ in 0..16 {
        dir = deep.add(dir, b"d", NewNode::directory())?;
    }
    Ok(vec![
        ("parts", Parts::everything().image()),
        ("empty", image(&Tree::default(), plain())?),
        ("everything", image(&everything, plain())?),
        ("always", image(&everything, with(Fragments::Always))?),
        ("without", image(&everything, with(Fragments::No))?),
        ("lz4", image(&everything, lz4)?),
        ("large", image(&large, plain())?),
        ("deep", image(&deep, plain())?),
    ])
}

fn everything() -> Result<Tree, BuildError> {
    let mut tree = Tree::default();
    let dir = tree.add(Tree::ROOT, b"dir", NewNode::directory())?;
    tree.add(dir, b"empty", file(b""))?;
    let shared = tree.add(dir, b"shared", file(b"abc"))?;
    tree.link(Tree::ROOT, b"hard", shared)?;
    let mut long = file(&[b'l'; 9000]);
    long.xattrs = BTreeMap::from([
        (b"user.a".to_vec(), vec![1; 300]),
        (b"security.b".to_vec(), Vec::new()),
    ]);
    tree.add(Tree::ROOT, b"long", long.clone())?;
    tree.add(Tree::ROOT, b"sparse", file(&[0; 9000]))?;
    let device = Device { major: 7, minor: 3 };
    for (name, kind) in [
        (&b"link"[..], NodeKind::Symlink(b"dir/empty".to_vec())),
        (b"block", NodeKind::BlockDevice(device)),
        (b"char", NodeKind::CharDevice(device)),
        (b"fifo", NodeKind::Fifo),
        (b"socket", NodeKind::Socket),
    ] {
        let mut node = NewNode::new(kind, 0o644);
        node.xattrs.insert(b"trusted.a".to_vec(), vec![1; 300]);
        tree.add(Tree::ROOT, name, node)?;
    }
    Ok(tree)
}

fn file(bytes: &'static [u8]) -> NewNode {
    let kind = NodeKind::File {
        len: u64_from(bytes.len()),
        content: Content::Bytes(bytes.into()),
    };
    NewNode::new(kind, 0o755)
}
