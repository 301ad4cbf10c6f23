//! What the writer decides by itself: what it shares, what it refuses, and that nothing else than
//! tree and options has a say.
#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions)]

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use forerun_codec::FillEncoding;
use forerun_engine::build::{BuildError, Content, ImageOutput, NewNode, NodeKind, Tree};
use forerun_erofs::write::{Compression, ErofsOptions, write};
use forerun_io::{Counter, Observer};
use forerun_testkit::generate;
use forerun_vfs::{Device, Timestamp};

const LZ4: FillEncoding = FillEncoding::Lz4;

fn file(bytes: &[u8]) -> NewNode {
    let kind = NodeKind::File {
        len: bytes.len() as u64,
        content: Content::Bytes(bytes.into()),
    };
    NewNode::new(kind, 0o644)
}

fn tree_of(files: &[(&str, &[u8])]) -> Tree {
    let mut tree = Tree::default();
    for (name, bytes) in files {
        tree.add(Tree::ROOT, name.as_bytes(), file(bytes)).unwrap();
    }
    tree
}

/// Small files, files of some blocks, long ones, twins of all, links, holes.
fn mixed() -> Tree {
    let mut tree = Tree::default();
    for dir in 0..4_u64 {
        let name = format!("dir {dir}");
        let dir_node = tree
            .add(Tree::ROOT, name.as_bytes(), NewNode::directory())
            .unwrap();
        for n in 0..40_u64 {
            let seed = if n % 5 == 0 { n } else { dir * 100 + n };
            let len = if n % 8 == 3 {
                400_000
            } else {
                700 * n as usize
            };
            let mut node = file(&generate::bytes(seed, len));
            node.uid = n as u32;
            let value = (n % 3).to_string().into_bytes();
            node.xattrs.insert(b"user.n".to_vec(), value);
            tree.add(dir_node, format!("file {n}").as_bytes(), node)
                .unwrap();
        }
        tree.add(dir_node, b"hole", file(&vec![0; 300_000]))
            .unwrap();
        let long = file(&generate::bytes(dir % 3, 9_000_000));
        tree.add(dir_node, b"long", long).unwrap();
    }
    tree
}

fn image(tree: &Tree, options: &ErofsOptions) -> Result<Vec<u8>, BuildError> {
    let mut out = Vec::new();
    let len = write(tree, options, &mut out, &Arc::new(Observer::default()))?;
    assert_eq!(len, out.len() as u64);
    assert_eq!(len % u64::from(options.block_size), 0);
    Ok(out)
}

fn compressed(compression: Compression) -> ErofsOptions {
    ErofsOptions {
        compression: Some(compression),
        ..ErofsOptions::default()
    }
}

fn lz4() -> ErofsOptions {
    compressed(Compression::new(LZ4))
}

fn chunked(chunk_size: u32) -> ErofsOptions {
    ErofsOptions {
        chunk_size: Some(chunk_size),
        ..ErofsOptions::default()
    }
}

#[test]
fn the_image_does_not_depend_on_threads_or_memory() {
    let tree = mixed();
    let zstd = FillEncoding::Zstd {
        level: 1,
        window_log: 20,
    };
    for options in [
        ErofsOptions::default(),
        lz4(),
        compressed(Compression {
            cluster_size: 64 << 10,
            inline_tails: true,
            share_extents: true,
            ..Compression::new(zstd)
        }),
        chunked(64 << 10),
    ] {
        let with = |threads, memory| ErofsOptions {
            threads,
            memory,
            ..options.clone()
        };
        let expected = image(&tree, &with(1, 64 << 20)).unwrap();
        for (threads, memory) in [(2, 64 << 20), (5, 64 << 20), (5, 0), (2, 1 << 20)] {
            let actual = image(&tree, &with(threads, memory)).unwrap();
            assert!(actual == expected, "{options:?} {threads} {memory}");
        }
    }
}

#[test]
fn equal_contents_are_stored_once() {
    for options in [ErofsOptions::default(), lz4(), chunked(4096)] {
        for len in [5000, 400_000, 1_100_000, 9_000_001] {
            let bytes = generate::bytes(1, len);
            let mut other = bytes.clone();
            other[len - 1] ^= 1;
            let len_of = |tree: &Tree, options: &ErofsOptions| image(tree, options).unwrap().len();
            let one = len_of(&tree_of(&[("a", &bytes)]), &options);
            let twins = tree_of(&[("a", &bytes), ("b", &bytes), ("c", &bytes)]);
            let three = len_of(&twins, &options);
            // Indexes and ends of files are each file's own.
            assert!(three <= one + 8192 + len / 200, "{len}: {one} {three}");
            let two = len_of(&tree_of(&[("a", &bytes), ("b", &other)]), &options);
            let chunks = options.chunk_size.is_some();
            assert_eq!(two > one + (one - 4096) / 2, !chunks, "{len}: {one} {two}");
            let without = ErofsOptions {
                duplicates: false,
                ..options.clone()
            };
            assert!(len_of(&twins, &without) >= 3 * (one - 4096), "{len}");
        }
    }
}

#[test]
fn equal_extents_are_stored_once_if_asked() {
    let bytes = generate::bytes(1, 3_000_000);
    let mut other = bytes.clone();
    *other.last_mut().unwrap() ^= 1;
    let tree = tree_of(&[("a", &bytes), ("b", &other)]);
    let share = |share_extents| {
        compressed(Compression {
            share_extents,
            ..Compression::new(LZ4)
        })
    };
    let one = image(&tree_of(&[("a", &bytes)]), &share(true))
        .unwrap()
        .len();
    let shared = image(&tree, &share(true)).unwrap().len();
    let apart = image(&tree, &share(false)).unwrap().len();
    assert!(shared < one + one / 50 + 8192, "{one} {shared}");
    assert!(apart > one * 3 / 2, "{one} {apart}");
}

#[test]
fn chunks_of_zeros_take_no_room() {
    let tree = tree_of(&[("zeros", &vec![0; 10 << 20])]);
    assert!(image(&tree, &chunked(64 << 10)).unwrap().len() <= 8192);
}

#[test]
fn another_device_takes_the_chunks() {
    let dir = forerun_testkit::temp_dir("erofs-blob");
    let path = dir.path().join("blob");
    let options = ErofsOptions {
        blob: Some(Arc::new(File::create(&path).unwrap())),
        ..chunked(4096)
    };
    let tree = tree_of(&[("a", &generate::bytes(1, 10_000)), ("b", &[7; 4096])]);
    assert_eq!(image(&tree, &options).unwrap().len(), 4096);
    let blob = std::fs::read(&path).unwrap();
    assert_eq!(blob.len(), 4 * 4096);
    assert_eq!(blob[3 * 4096..], [7; 4096]);
}

#[test]
fn data_are_in_the_order_asked_for() {
    let text = |name: &str| name.repeat(1000);
    let names = ["first", "second", "third"].map(text);
    let tree = tree_of(&[
        ("a", names[0].as_bytes()),
        ("b", names[1].as_bytes()),
        ("c", names[2].as_bytes()),
    ]);
    let mut options = ErofsOptions {
        inline_tails: false,
        ..ErofsOptions::default()
    };
    let order = |options: &ErofsOptions| {
        let image = image(&tree, options).unwrap();
        let starts = names.iter().map(|text| {
            let text = &text.as_bytes()[..50];
            image
                .chunks(4096)
                .position(|block| block.starts_with(text))
                .unwrap()
        });
        let mut order: Vec<_> = starts.zip('a'..).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, name)| name).collect::<String>()
    };
    assert_eq!(order(&options), "abc");
    options.order.add(b"c".to_vec());
    options.order.add(b"a".to_vec());
    assert_eq!(order(&options), "cab");
}

#[test]
fn the_superblock_says_what_was_asked() {
    let mut tree = tree_of(&[("a", b"x"), ("b", b"y")]);
    let time = Timestamp {
        seconds: 1_234_567_890,
        nanoseconds: 5,
    };
    for name in [b"a", b"b"] {
        let node = tree.child(Tree::ROOT, name).unwrap();
        tree.node_mut(node).mtime = time;
    }
    let word = |image: &[u8], at: usize| {
        u32::from_le_bytes(image[1024 + at..1024 + at + 4].try_into().unwrap())
    };
    let image_of = |options: &ErofsOptions| image(&tree, options).unwrap();
    let plain = image_of(&ErofsOptions::default());
    assert_eq!(plain.len(), 4096);
    assert_eq!(word(&plain, 0x10), 3, "inodes");
    assert_eq!(word(&plain, 0x18), 1_234_567_890, "the most frequent time");
    assert_eq!(word(&plain, 0x20), 5);
    assert_eq!(word(&plain, 0x50), 0, "features");
    let uuid = plain[1024 + 0x30..1024 + 0x40].to_vec();
    assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (8, 2), "version and variant");
    let with = |compression| ErofsOptions {
        mkfs_time: Some(7),
        uuid: Some(*b"0123456789abcdef"),
        label: b"label".to_vec(),
        ..compressed(compression)
    };
    let other = image_of(&with(Compression::new(LZ4)));
    assert_eq!((word(&other, 0x18), word(&other, 0x20)), (7, 0));
    assert_eq!(
        other[1024 + 0x30..1024 + 0x50],
        *b"0123456789abcdeflabel\0\0\0\0\0\0\0\0\0\0\0"
    );
    assert_eq!(word(&other, 0x50), 0x01, "zero padding");
    let big = Compression {
        cluster_size: 64 << 10,
        inline_tails: true,
        ..Compression::new(LZ4)
    };
    let other = image_of(&with(big));
    assert_eq!(word(&other, 0x50), 0x13, "configurations, inline extents");
    assert_eq!(word(&other, 0x54) & 0xFFFF, 1, "LZ4");
    assert_eq!(
        other[1152..1158],
        [14, 0, 0xFF, 0xFF, 16, 0],
        "64 KiB of distance, 16 blocks"
    );
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_written() {
    let one = |name: &[u8], kind: NodeKind| {
        let mut tree = Tree::default();
        let dir = tree.add(Tree::ROOT, b"dir", NewNode::directory()).unwrap();
        tree.add(dir, name, NewNode::new(kind, 0o644)).unwrap();
        tree
    };
    let device = |major, minor| NodeKind::CharDevice(Device { major, minor });
    let refused = |tree: &Tree, options: &ErofsOptions, expected: &str| {
        let mut out = Vec::new();
        let error = write(tree, options, &mut out, &Arc::new(Observer::default())).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, BuildError::Format { .. }), "{message}");
        assert!(message.contains(expected), "{message}");
        assert!(out.is_empty());
    };
    let link = |len| NodeKind::Symlink(vec![b'x'; len]);
    let mut wide = Tree::default();
    for n in 0..5 {
        let xattrs = &mut wide.node_mut(Tree::ROOT).xattrs;
        xattrs.insert(format!("user.{n}").into_bytes(), vec![n; 65_535]);
    }
    let mut long = Tree::default();
    let xattrs = &mut long.node_mut(Tree::ROOT).xattrs;
    xattrs.insert(b"user.a".to_vec(), vec![0; 65_536]);
    for (tree, expected) in [
        (one(&[b'n'; 256], NodeKind::Fifo), "a name of 256 bytes"),
        (one(b"l", link(4096)), "dir/l: a link to 4096 bytes"),
        (one(b"l", link(0)), "dir/l: a link to 0 bytes"),
        (
            one(b"d", device(4096, 0)),
            "dir/d: the device number 4096:0",
        ),
        (
            one(b"d", device(0, 1 << 20)),
            "dir/d: the device number 0:1048576",
        ),
        (long, "user.a with 65536 bytes"),
        (wide, "bytes of extended attributes of one inode"),
    ] {
        refused(&tree, &ErofsOptions::default(), expected);
    }
    let plain = ErofsOptions::default;
    let cluster = |cluster_size| {
        compressed(Compression {
            cluster_size,
            ..Compression::new(LZ4)
        })
    };
    for (options, expected) in [
        (
            ErofsOptions {
                block_size: 256,
                ..plain()
            },
            "a block size of 256",
        ),
        (
            ErofsOptions {
                block_size: 1 << 17,
                ..plain()
            },
            "a block size of 131072",
        ),
        (
            ErofsOptions {
                label: vec![b'x'; 17],
                ..plain()
            },
            "a label of 17 bytes",
        ),
        (
            ErofsOptions {
                xattr_prefixes: vec![b"a".to_vec()],
                ..plain()
            },
            "the prefix a",
        ),
        (chunked(2048), "chunks of 2048 bytes"),
        (
            ErofsOptions {
                chunk_size: Some(4096),
                ..lz4()
            },
            "compressed chunks",
        ),
        (cluster(2048), "clusters of 2048"),
        (cluster(2 << 20), "clusters of 2097152"),
        (cluster(12 << 10), "clusters of 12288"),
        (
            compressed(Compression::new(FillEncoding::Lz4Hc { level: 13 })),
            "13",
        ),
    ] {
        refused(&Tree::default(), &options, expected);
    }
}

#[test]
fn a_file_that_changed_is_an_error_that_names_it() {
    for len in [10, 200_000, 9_000_000_u64] {
        for twin in [false, true] {
            for (now, expected) in [(len - 1, "shorter"), (len + 1, "longer"), (0, "shorter")] {
                let mut tree = Tree::default();
                let dir = tree.add(Tree::ROOT, b"dir", NewNode::directory()).unwrap();
                if twin {
                    tree.add(dir, b"a", file(&vec![7; len as usize])).unwrap();
                }
                let kind = NodeKind::File {
                    len,
                    content: Content::Bytes(vec![7; now as usize].into()),
                };
                tree.add(dir, b"file", NewNode::new(kind, 0o644)).unwrap();
                for options in [lz4(), ErofsOptions::default(), chunked(4096)] {
                    let error = image(&tree, &options).unwrap_err();
                    assert!(matches!(error, BuildError::Content { .. }), "{error}");
                    let error = error.to_string();
                    let named = error.contains("dir/file") && error.contains(expected);
                    assert!(named, "{error}");
                }
            }
        }
    }
}

/// Takes so many bytes and so many patches.
struct Full {
    room: usize,
    patches: usize,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let len = bytes.len().min(self.room);
        self.room -= len;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ImageOutput for Full {
    fn patch(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        match self.patches {
            0 => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
}

#[test]
fn an_output_that_fails_is_an_error() {
    let tree = tree_of(&[("a", &generate::bytes(1, 5_000_000)), ("b", b"small")]);
    for options in [lz4(), ErofsOptions::default()] {
        let whole = image(&tree, &options).unwrap().len();
        for (room, patches) in [(0, 1), (1, 1), (whole / 2, 1), (whole - 1, 1), (whole, 0)] {
            let mut out = Full { room, patches };
            let result = write(&tree, &options, &mut out, &Arc::new(Observer::default()));
            let failed = matches!(result, Err(BuildError::Output { .. }));
            assert!(failed, "{room} {result:?}");
        }
    }
}

#[test]
fn every_byte_is_written_once_and_little_twice() {
    let observer = Arc::new(Observer::default());
    let len = write(&mixed(), &lz4(), &mut Vec::new(), &observer).unwrap();
    let written = observer.stats().get(Counter::WrittenBytes);
    assert!(written < len + 4096, "{written} of {len}");
    let writes = observer.stats().get(Counter::Writes);
    assert!(
        writes <= len / (1 << 20) * 2 + 4,
        "{writes} writes of {len} bytes"
    );
}

#[test]
fn a_deep_tree_takes_no_stack() {
    let mut tree = Tree::default();
    let mut dir = Tree::ROOT;
    for _ in 0..100_000 {
        dir = tree.add(dir, b"d", NewNode::directory()).unwrap();
    }
    image(&tree, &ErofsOptions::default()).unwrap();
}
