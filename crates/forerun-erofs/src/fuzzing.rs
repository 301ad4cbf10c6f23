//! Entry points for fuzz targets, and images to start from. Not for users.
//!
//! Plain functions over bytes, so that the same code runs under a fuzzer and, over mutated seeds, in
//! ordinary tests. They panic only where the driver broke its contract.

mod parts;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_io::{Limits, MemorySource, ReadAt, saturating_usize};
use forerun_vfs::{DirCursor, Error, FileSystem, FileType, NodeId, OpenWith, Result, Walk};

use crate::driver::Erofs;
use crate::superblock::{self, Superblock};

pub use parts::{DATA, LEN, META, at, image, nid, with_inodes, with_root, with_xattrs};

/// Parts of [`image`]: its inodes but for the root, the root's entries, the xattrs of an inode.
pub const PIECES: (Range<usize>, Range<usize>, Range<usize>) = (
    META + 256..DATA,
    META + 64..META + 242,
    META + 672..META + 700,
);

/// Bounds that keep one run short.
#[must_use]
pub fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.depth = 32;
    limits.dir_entries = 1000;
    limits.tree_entries = 2000;
    limits.total_bytes = 16 << 20;
    limits.block_len = 1 << 20;
    limits.xattr_bytes = 1 << 20;
    limits
}

/// Takes `bytes` as the part of an image from its superblock on.
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

/// Takes `bytes` as inodes.
pub fn inodes(bytes: &[u8]) {
    let Ok(fs) = open(with_inodes(bytes)) else {
        return;
    };
    for node in nid::CHUNKS..nid::CHUNKS + 32 {
        let _outcome = use_node(&fs, NodeId(node));
    }
}

/// Takes `bytes` as the entries of the root.
pub fn directories(bytes: &[u8]) {
    walk(&with_root(bytes));
}

/// Takes `bytes` as the xattrs of an inode.
pub fn xattrs(bytes: &[u8]) {
    if let Ok(fs) = open(with_xattrs(bytes)) {
        let _outcome = use_node(&fs, NodeId(nid::XATTRS));
    }
}

/// Opens `bytes` as an image and does everything with every node that the driver can do; gives
/// what went wrong and what `check` reports.
pub fn walk(bytes: &[u8]) -> Vec<Error> {
    walk_source(Arc::new(MemorySource::new(bytes)))
}

/// As [`walk`].
pub fn walk_source(source: Arc<dyn ReadAt>) -> Vec<Error> {
    match open_source(source) {
        Ok(fs) => walk_open(&fs),
        Err(error) => vec![error],
    }
}

/// As [`walk`], of an image that is open.
pub fn walk_open(fs: &Erofs) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut problems = Vec::new();
    errors.extend(
        fs.check(None, &mut |found| problems.push(found.error))
            .err(),
    );
    errors.extend(fs.describe(None).err());
    let image_len = fs.volume().image_len;
    for range in fs.metadata_ranges() {
        assert!(range.start < range.end && range.end <= image_len);
    }
    let (mut met, limits) = (0_u64, limits());
    for entry in Walk::new(fs, fs.root(), &limits) {
        met += 1;
        // Besides the entries, each directory can give one error.
        assert!(met <= 2 * limits.tree_entries + 2, "the walk goes on");
        match entry {
            Ok(entry) => match use_node(fs, entry.node) {
                Ok(found) => problems.extend(found),
                Err(error) => errors.push(error),
            },
            Err(error) => errors.push(error),
        }
    }
    errors.extend(problems);
    errors
}

fn open(bytes: Vec<u8>) -> Result<Erofs> {
    open_source(Arc::new(MemorySource::new(bytes)))
}

fn open_source(source: Arc<dyn ReadAt>) -> Result<Erofs> {
    let mut with = OpenWith::new(source);
    with.limits = limits();
    Erofs::open(with)
}

/// Everything with one node; gives what `check` reports of it.
fn use_node(fs: &Erofs, node: NodeId) -> Result<Vec<Error>> {
    let mut problems = Vec::new();
    fs.check(Some(node), &mut |found| problems.push(found.error))?;
    let metadata = fs.metadata(node)?;
    fs.xattrs(node, &mut |name, value| {
        assert!(!name.is_empty() && value.len() <= 65_535);
    })?;
    match metadata.kind {
        FileType::Directory => read_dir(fs, node)?,
        FileType::Symlink => assert!(!fs.read_link(node)?.is_empty()),
        FileType::Regular => map(fs, node, metadata.size)?,
        FileType::BlockDevice | FileType::CharDevice | FileType::Fifo | FileType::Socket => {}
    }
    fs.describe(Some(node))?;
    Ok(problems)
}

fn read_dir(fs: &Erofs, node: NodeId) -> Result<()> {
    let mut left = saturating_usize(limits().dir_entries);
    fs.read_dir(node, DirCursor::START, &mut |entry| {
        assert!(entry.next != DirCursor::START);
        // A small step for each cursor, as a mount does it.
        let _outcome = fs.read_dir(node, entry.next, &mut |_| ControlFlow::Break(()));
        let _outcome = fs.lookup(node, entry.name);
        left -= 1;
        match left {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })?;
    fs.lookup(node, b"no such name").map(|_| ())
}

/// Extents that are looked at of one file: there may be as many as the file has blocks.
const EXTENTS: u64 = 10_000;

fn map(fs: &Erofs, node: NodeId, size: u64) -> Result<()> {
    let (mut at, mut left) = (0, EXTENTS);
    fs.map(node, 0..u64::MAX, &mut |extent| {
        assert_eq!(extent.logical.start, at);
        assert!(extent.logical.end > at && extent.logical.end <= size);
        at = extent.logical.end;
        left -= 1;
        match left {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })?;
    assert!(at == size || left == 0, "the map ends with the file");
    let middle = size / 2;
    fs.map(node, middle..middle.saturating_add(1), &mut |extent| {
        assert!(extent.logical.contains(&middle));
        ControlFlow::Break(())
    })
}

/// Small images that together hold what the format can say: where fuzzing starts.
#[must_use]
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut sound = image();
    sound.splice(1024 + 8..1024 + 12, 0x13_u32.to_le_bytes());
    let sum = superblock::checksum(sound.get(1024..1536).unwrap_or_default());
    sound.splice(1024 + 4..1024 + 8, sum.to_le_bytes());
    vec![("parts", image()), ("checksum", sound)]
}
