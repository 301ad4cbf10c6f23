//! Entry points of the fuzz targets, so that the same code runs in a plain test. Not part of the
//! API.

use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_build::{BuildError, Content, NewNode, NodeKind, Tree};
use forerun_io::{Limits, MemorySource, Observer, u64_from};
use forerun_vfs::{Device, DirCursor, Error, FileSystem, FileType, NodeId, Result, Walk};

use crate::header::{self, Header};
use crate::superblock::Superblock;
use crate::{Romfs, RomfsOptions, ondisk, write};

/// Returns limits under which every input takes milliseconds.
#[must_use]
pub fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.depth = 32;
    limits.dir_entries = 1 << 10;
    limits.tree_entries = 1 << 12;
    limits.total_bytes = 1 << 24;
    limits
}

/// Parses `bytes` as the start of an image, unchanged and with a corrected checksum.
pub fn superblock(bytes: &[u8]) {
    for head in [bytes.to_vec(), with_checksum(bytes)] {
        for source_len in [u64_from(head.len()), u64::from(u32::MAX), u64::MAX] {
            if let Ok(superblock) = Superblock::parse(&head, source_len) {
                assert!(superblock.root < superblock.full_size);
                assert!(superblock.full_size <= source_len);
                assert!(!superblock.volume_name.contains(&0));
            }
        }
    }
}

/// Parses `bytes` as a header at different offsets in images of different sizes.
pub fn header(bytes: &[u8]) {
    // Offsets and the size of an image have 32 bits.
    for offset in [0x20, 0xFFFF_FFF0] {
        for full_size in [0, 0x40, u64::from(u32::MAX)] {
            for name_limit in [0, 15, 255, usize::MAX] {
                let Ok(header) = Header::parse(bytes, offset, full_size, name_limit) else {
                    continue;
                };
                assert!(header.name.len() <= name_limit && !header.name.contains(&0));
                assert!(header::has_name_end(bytes));
                if header.check_data(full_size).is_ok() && header.data > full_size {
                    assert!(!matches!(
                        header.file_type(),
                        Some(FileType::Regular | FileType::Symlink)
                    ));
                }
                let _outcome = header.check_name(name_limit);
                let _outcome = header.deviations();
            }
        }
    }
}

/// Opens `bytes` as an image, unchanged and with a corrected checksum of the superblock, and calls
/// every method of the driver on every node. Returns the errors.
pub fn walk(bytes: &[u8]) -> Vec<Error> {
    let mut errors = Vec::new();
    for image in [bytes.to_vec(), with_checksum(bytes)] {
        for index_bytes in [limits().dir_index_bytes, 0] {
            let mut limits = limits();
            limits.dir_index_bytes = index_bytes;
            errors.extend(walk_image(&image, &limits));
        }
    }
    errors
}

fn walk_image(image: &[u8], limits: &Limits) -> Vec<Error> {
    let romfs = match Romfs::open(Arc::new(MemorySource::new(image)), limits) {
        Ok(romfs) => romfs,
        Err(error) => return vec![error],
    };
    let mut errors = Vec::new();
    errors.extend(romfs.check(None, &mut |_| {}).err());
    errors.extend(romfs.describe(None).err());
    let mut met: u64 = 0;
    for entry in Walk::new(&romfs, romfs.root(), limits) {
        met += 1;
        // Each directory can give one error besides its entries.
        assert!(met <= 2 * limits.tree_entries + 2, "the walk goes on");
        match entry {
            Ok(entry) => errors.extend(use_node(&romfs, entry.node).err()),
            Err(failed) => errors.push(failed.error),
        }
    }
    errors
}

fn use_node(romfs: &Romfs, node: NodeId) -> Result<()> {
    romfs.check(Some(node), &mut |_| {})?;
    romfs.describe(Some(node))?;
    let metadata = romfs.metadata(node)?;
    match metadata.kind {
        FileType::Directory => {
            romfs.read_dir(node, DirCursor::START, &mut |entry| {
                assert!(entry.next != DirCursor::START);
                // A mount makes such a short call for each cursor.
                let mut next = None;
                let _outcome = romfs.read_dir(node, entry.next, &mut |entry| {
                    next = Some(entry.node);
                    ControlFlow::Break(())
                });
                let _outcome = romfs.lookup(node, entry.name);
                ControlFlow::Continue(())
            })?;
            romfs.lookup(node, b"no such name").map(|_| ())
        }
        FileType::Symlink => romfs
            .read_link(node)
            .map(|target| assert!(!target.is_empty())),
        FileType::Regular => {
            let end = romfs.volume().image_len;
            romfs.map(node, 0..u64::MAX, &mut |extent| {
                assert_eq!(extent.logical, 0..metadata.size);
                assert!(extent.logical.end <= end, "extents lie in the image");
                ControlFlow::Continue(())
            })
        }
        FileType::BlockDevice | FileType::CharDevice | FileType::Fifo | FileType::Socket => Ok(()),
    }
}

/// Corrects the superblock's checksum, without which no mutation gets past the first check.
#[must_use]
pub fn with_checksum(image: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    let size = image.get(8..12).and_then(|word| word.try_into().ok());
    let size = size.map_or(0, u32::from_be_bytes);
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let covered = size.min(512).min(image.len());
    let put = |word: u32, image: &mut [u8]| {
        if let Some(checksum) = image.get_mut(12..16) {
            checksum.copy_from_slice(&word.to_be_bytes());
        }
    };
    put(0, &mut image);
    let sum = ondisk::checksum(image.get(..covered).unwrap_or_default());
    put(sum.wrapping_neg(), &mut image);
    image
}

/// Creates small images that together cover the whole format, as seeds. Never fails, because they
/// are in memory and small.
pub fn seeds() -> Result<Vec<(&'static str, Vec<u8>)>, BuildError> {
    let image = |tree: &Tree, align| {
        let options = RomfsOptions {
            align,
            ..RomfsOptions::default()
        };
        let mut out = Vec::new();
        write(tree, &options, &mut out, &Arc::new(Observer::default())).map(|_| out)
    };
    let everything = everything()?;
    let mut large = Tree::default();
    for n in 0..40 {
        large.add(Tree::ROOT, format!("file{n}").as_bytes(), file(b"x"))?;
    }
    let mut deep = Tree::default();
    let mut dir = Tree::ROOT;
    for _ in 0..16 {
        dir = deep.add(dir, b"d", NewNode::directory())?;
    }
    Ok(vec![
        ("empty", image(&Tree::default(), 16)?),
        ("everything", image(&everything, 16)?),
        ("aligned", image(&everything, 512)?),
        ("large", image(&large, 16)?),
        ("deep", image(&deep, 16)?),
    ])
}

fn everything() -> Result<Tree, BuildError> {
    let mut tree = Tree::default();
    let dir = tree.add(Tree::ROOT, b"dir", NewNode::directory())?;
    tree.add(dir, b"empty", file(b""))?;
    let shared = tree.add(
        dir,
        b"a name of more than 31 bytes, so in three parts",
        file(b"abc"),
    )?;
    tree.link(Tree::ROOT, b"hard", shared)?;
    let device = Device { major: 7, minor: 3 };
    for (name, kind) in [
        (&b"link"[..], NodeKind::Symlink(b"dir/empty".to_vec())),
        (b"block", NodeKind::BlockDevice(device)),
        (b"char", NodeKind::CharDevice(device)),
        (b"fifo", NodeKind::Fifo),
        (b"socket", NodeKind::Socket),
    ] {
        tree.add(Tree::ROOT, name, NewNode::new(kind, 0o644))?;
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
