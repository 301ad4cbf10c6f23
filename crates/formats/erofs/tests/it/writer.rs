//! Decisions of the writer: what it shares, what it rejects, and that only the tree and the options
//! matter.

use std::fs::File;
use std::sync::Arc;

use forerun_build::{BuildError, NewNode, NodeKind, Tree};
use forerun_codec::FillEncoding;
use forerun_erofs::write::{Compression, ErofsOptions, Fragments, write};
use forerun_io::{Counter, Observer};
use forerun_testkit::generate;
use forerun_testkit::trees::{Full, changed, tree_of, tree_of_one};
use forerun_vfs::{Device, Timestamp};

const LZ4: FillEncoding = FillEncoding::Lz4;

/// Creates short, medium and long files, a duplicate of each, and holes.
fn mixed() -> Tree {
    forerun_testkit::trees::mixed(4, 9_000_000)
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
        packed(Fragments::Tails, 16 << 10),
        packed(Fragments::All, 4096),
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
            // Indexes and tails of files are not shared.
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

fn packed(fragments: Fragments, cluster_size: u32) -> ErofsOptions {
    compressed(Compression {
        fragments,
        cluster_size,
        ..Compression::new(LZ4)
    })
}

#[test]
fn ends_of_files_share_blocks_in_the_packed_inode() {
    // Each file alone takes a block; together, the tails of the long ones take almost none.
    let names: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let contents: Vec<Vec<u8>> = (0..200).map(|n| generate::bytes(n, 3000)).collect();
    let files = names.iter().zip(&contents);
    let files: Vec<(&str, &[u8])> = files.map(|(name, bytes)| (&name[..], &bytes[..])).collect();
    let mut tree = tree_of(&files);
    let long = generate::bytes(7, 1_200_000);
    tree.add(Tree::ROOT, b"long", forerun_testkit::trees::file(&long))
        .unwrap();
    let len_of = |options: &ErofsOptions| image(&tree, options).unwrap().len();
    let apart = ErofsOptions {
        inline_tails: false,
        ..packed(Fragments::None, 4096)
    };
    let (apart, tails, all) = (
        len_of(&apart),
        len_of(&packed(Fragments::Tails, 4096)),
        len_of(&packed(Fragments::All, 4096)),
    );
    assert!(tails < apart - 100 * 4096, "{apart} {tails}");
    assert!(all.abs_diff(tails) < tails / 20, "{tails} {all}");
    // Equal tails of different files are stored once.
    let twins = |n: u8| {
        let end = generate::bytes(1, 3000);
        let files = (0..n).map(|n| {
            (
                n.to_string(),
                [&generate::bytes(n.into(), 40_000), &end[..]].concat(),
            )
        });
        let files: Vec<_> = files.collect();
        let files: Vec<_> = files
            .iter()
            .map(|(name, bytes)| (&name[..], &bytes[..]))
            .collect();
        image(&tree_of(&files), &packed(Fragments::All, 4096)).unwrap()
    };
    let feature = |image: &[u8]| image[1024 + 0x50] & 0x20;
    let nothing = image(&Tree::default(), &packed(Fragments::All, 4096)).unwrap();
    assert_eq!((feature(&twins(1)), feature(&nothing)), (0x20, 0));
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

/// Checks that the writer rejects the tree with this message before it writes a byte.
#[track_caller]
fn assert_refused(tree: &Tree, options: &ErofsOptions, expected: &str) {
    let mut out = Vec::new();
    let error = write(tree, options, &mut out, &Arc::new(Observer::default())).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, BuildError::Format { .. }), "{message}");
    assert!(message.contains(expected), "{message}");
    assert!(out.is_empty());
}

#[test]
fn a_tree_that_does_not_fit_is_refused_before_anything_is_written() {
    let one = |name: &[u8], kind| tree_of_one(name, NewNode::new(kind, 0o644));
    let device = |major, minor| NodeKind::CharDevice(Device { major, minor });
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
        assert_refused(&tree, &ErofsOptions::default(), expected);
    }
}

#[test]
fn options_that_do_not_fit_are_refused_before_anything_is_written() {
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
        (
            compressed(Compression {
                inline_tails: true,
                fragments: Fragments::Tails,
                ..Compression::new(LZ4)
            }),
            "both after their inodes and in the packed inode",
        ),
        (cluster(2048), "clusters of 2048"),
        (cluster(2 << 20), "clusters of 2097152"),
        (cluster(12 << 10), "clusters of 12288"),
        (
            compressed(Compression::new(FillEncoding::Lz4Hc { level: 13 })),
            "13",
        ),
    ] {
        assert_refused(&Tree::default(), &options, expected);
    }
}

#[test]
fn a_file_that_changed_is_an_error_that_names_it() {
    for len in [10, 200_000, 9_000_000] {
        for (tree, expected) in changed(len) {
            let all = packed(Fragments::All, 4096);
            for options in [lz4(), ErofsOptions::default(), chunked(4096), all] {
                let error = image(&tree, &options).unwrap_err();
                assert!(matches!(error, BuildError::Content { .. }), "{error}");
                let error = error.to_string();
                let named = error.contains("dir/file") && error.contains(expected);
                assert!(named, "{error}");
            }
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
