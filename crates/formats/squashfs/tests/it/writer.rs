//! Decisions of the writer: what it shares, what it rejects, and that only the tree and the options
//! matter.

use std::sync::Arc;

use forerun_build::{BuildError, Content, HostFile, NewNode, NodeKind, Tree};
use forerun_codec::{Bcj, Encoding, LzmaTuning, ZlibStrategies};
use forerun_io::{Counter, Observer};
use forerun_squashfs::write::{Compress, Fragments, SquashfsOptions, write};
use forerun_testkit::generate;
use forerun_testkit::trees::{Full, changed, tree_of, tree_of_one};
use forerun_vfs::{Device, Timestamp};

/// Creates short files, files of several blocks, duplicates of both, and holes.
fn mixed() -> Tree {
    forerun_testkit::trees::mixed(5, 3_000_000)
}

fn image(tree: &Tree, options: &SquashfsOptions) -> Result<Vec<u8>, BuildError> {
    let mut out = Vec::new();
    let len = write(tree, options, &mut out, &Arc::new(Observer::default()))?;
    assert_eq!(len, out.len() as u64);
    Ok(out)
}

fn fast() -> SquashfsOptions {
    SquashfsOptions {
        encoding: Encoding::Zlib {
            level: 1,
            window_bits: 15,
            strategies: ZlibStrategies::default(),
        },
        ..SquashfsOptions::default()
    }
}

#[test]
fn the_image_does_not_depend_on_threads_or_memory() {
    let tree = mixed();
    for fragments in [Fragments::Yes, Fragments::No, Fragments::Always] {
        let options = |threads, memory| SquashfsOptions {
            fragments,
            threads,
            memory,
            ..fast()
        };
        let expected = image(&tree, &options(1, 64 << 20)).unwrap();
        assert_eq!(expected.len() % 4096, 0);
        for (threads, memory) in [(2, 64 << 20), (5, 64 << 20), (5, 0), (2, 1 << 20)] {
            let actual = image(&tree, &options(threads, memory)).unwrap();
            assert!(actual == expected, "{fragments:?} {threads} {memory}");
        }
    }
}

#[test]
fn equal_contents_are_stored_once() {
    for (len, fragments) in [
        (5000, Fragments::Yes),
        (5000, Fragments::No),
        (400_000, Fragments::Yes),
        (400_000, Fragments::Always),
        (3_000_001, Fragments::Yes),
        (3_000_001, Fragments::Always),
    ] {
        // Uncompressed duplicate data takes twice the space.
        let compress = Compress {
            data: false,
            fragments: false,
            ..Compress::default()
        };
        let options = SquashfsOptions {
            fragments,
            compress,
            ..fast()
        };
        let bytes = generate::bytes(1, len);
        let mut other = bytes.clone();
        other[len - 1] ^= 1;
        let one = image(&tree_of(&[("a", &bytes)]), &options).unwrap().len();
        let twins = tree_of(&[("a", &bytes), ("b", &bytes), ("c", &bytes)]);
        let three = image(&twins, &options).unwrap().len();
        assert!(three <= one + 4096, "{len} {fragments:?}: {one} {three}");
        let differing = tree_of(&[("a", &bytes), ("b", &other)]);
        let two = image(&differing, &options).unwrap().len();
        // If the ends differ, the whole blocks before them may still be shared.
        let shared = fragments == Fragments::Always && len > 128 << 10;
        assert_eq!(
            two > one + len / 2,
            !shared,
            "{len} {fragments:?}: {one} {two}"
        );
        let without = SquashfsOptions {
            duplicates: false,
            ..options
        };
        let kept = image(&twins, &without).unwrap().len();
        assert!(kept > 3 * len, "{len} {fragments:?}: {one} {kept}");
    }
}

#[test]
fn zeros_are_left_out_if_asked() {
    let tree = tree_of(&[("zeros", &vec![0; 10 << 20])]);
    let stored = |sparse| SquashfsOptions {
        sparse,
        compress: Compress {
            data: false,
            ..Compress::default()
        },
        ..fast()
    };
    assert_eq!(image(&tree, &stored(true)).unwrap().len(), 4096);
    assert!(image(&tree, &stored(false)).unwrap().len() > 10 << 20);
}

#[test]
fn priorities_order_the_data() {
    let tree = tree_of(&[
        ("a", b"first letter"),
        ("b", b"second letter"),
        ("c", b"third letter"),
    ]);
    let stored = SquashfsOptions {
        compress: Compress {
            fragments: false,
            ..Compress::default()
        },
        ..fast()
    };
    let order = |options: &SquashfsOptions| {
        let image = image(&tree, options).unwrap();
        let at = |text: &[u8]| {
            image
                .windows(text.len())
                .position(|found| found == text)
                .unwrap()
        };
        let mut order = [
            (at(b"first"), 'a'),
            (at(b"second"), 'b'),
            (at(b"third"), 'c'),
        ];
        order.sort_unstable();
        order.map(|(_, name)| name)
    };
    assert_eq!(order(&stored), ['a', 'b', 'c']);
    let dir = forerun_testkit::temp_dir("priorities");
    let list = dir.path().join("list");
    std::fs::write(&list, "c 5\na -3\n").unwrap();
    let mut options = stored;
    options.priorities.add_file(&list).unwrap();
    assert_eq!(order(&options), ['c', 'b', 'a']);
}

#[test]
fn the_superblock_says_what_was_asked() {
    let mut tree = tree_of(&[("a", b"x"), ("b", b"y")]);
    let node = tree.child(Tree::ROOT, b"a").unwrap();
    tree.node_mut(node).mtime = Timestamp {
        seconds: 1_234_567_890,
        nanoseconds: 5,
    };
    let word = |image: &[u8], at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    let image_of = |options: &SquashfsOptions| image(&tree, options).unwrap();
    let plain = image_of(&SquashfsOptions::default());
    assert_eq!(word(&plain, 4), 3, "inodes");
    assert_eq!(word(&plain, 8), 1_234_567_890, "the latest time");
    assert_eq!(word(&plain, 24) & 0xffff, 0x00c0, "duplicates, exportable");
    let plain_options = SquashfsOptions {
        mkfs_time: Some(7),
        exportable: false,
        duplicates: false,
        xattrs: false,
        pad: false,
        ..fast()
    };
    let other = image_of(&plain_options);
    assert_eq!(word(&other, 8), 7);
    assert_eq!(word(&other, 24) & 0xffff, 0x0600, "no xattrs, options");
    assert_eq!(
        u64::from(word(&other, 40)),
        other.len() as u64,
        "not padded"
    );
    assert_eq!(
        other[96..106],
        [8, 0x80, 1, 0, 0, 0, 15, 0, 0, 0],
        "level 1, window 15"
    );
}

/// Linux rejected metadata blocks with a larger dictionary than the options declare.
#[test]
fn xz_options_declare_a_dictionary_that_metadata_fit() {
    let tree = tree_of(&[("a", b"x")]);
    for (block_size, dictionary) in [(4096, 8192), (8192, 8192), (16_384, 16_384)] {
        let filters = [Bcj::X86].into_iter().collect();
        let encoding = Encoding::Xz {
            dictionary: None,
            filters,
            tuning: LzmaTuning::default(),
        };
        let options = SquashfsOptions {
            encoding,
            block_size,
            ..SquashfsOptions::default()
        };
        let image = image(&tree, &options).unwrap();
        let declared = u32::from_le_bytes(image[98..102].try_into().unwrap());
        assert_eq!(declared, dictionary, "blocks of {block_size}");
    }
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_written() {
    let one = |name: &[u8], kind| tree_of_one(name, NewNode::new(kind, 0o644));
    let device = |major, minor| NodeKind::CharDevice(Device { major, minor });
    let refused = |tree: &Tree, options: &SquashfsOptions, expected: &str| {
        let mut out = Vec::new();
        let error = write(tree, options, &mut out, &Arc::new(Observer::default())).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, BuildError::Format { .. }), "{message}");
        assert!(message.contains(expected), "{message}");
        assert!(out.is_empty());
    };
    let link = |len| NodeKind::Symlink(vec![b'x'; len]);
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
    ] {
        refused(&tree, &SquashfsOptions::default(), expected);
    }
    for block_size in [0, 2048, 5000, 1 << 21] {
        let options = SquashfsOptions {
            block_size,
            ..fast()
        };
        refused(
            &Tree::default(),
            &options,
            &format!("block size of {block_size}"),
        );
    }
    let options = SquashfsOptions {
        encoding: Encoding::Zstd { level: 23 },
        ..fast()
    };
    refused(&Tree::default(), &options, "23");
    for filters in [vec![Bcj::Ia64], vec![Bcj::X86, Bcj::Ia64]] {
        let filters = filters.into_iter().collect();
        let options = SquashfsOptions {
            encoding: Encoding::Xz {
                dictionary: None,
                filters,
                tuning: LzmaTuning::default(),
            },
            ..fast()
        };
        refused(
            &Tree::default(),
            &options,
            "the ia64 filter of xz; Linux 6.7",
        );
    }
}

#[test]
fn what_does_not_fit_the_tables_is_refused() {
    let mut many = Tree::default();
    for n in 0..65_536_u32 {
        let mut node = NewNode::new(NodeKind::Fifo, 0o600);
        node.uid = n;
        many.add(Tree::ROOT, n.to_string().as_bytes(), node)
            .unwrap();
    }
    let error = image(&many, &fast()).unwrap_err().to_string();
    assert!(error.contains("65535 users"), "{error}");
    for (name, len) in [("user.a".to_string(), 65_537), ("user.".repeat(52), 1)] {
        let mut tree = Tree::default();
        let xattrs = &mut tree.node_mut(Tree::ROOT).xattrs;
        xattrs.insert(name.into_bytes(), vec![0; len]);
        let error = image(&tree, &fast()).unwrap_err().to_string();
        assert!(error.contains("the xattr"), "{error}");
    }
}

#[test]
fn a_file_that_changed_is_an_error_that_names_it() {
    for len in [10, 200_000, 3_000_000] {
        for (tree, expected) in changed(len) {
            let error = image(&tree, &fast()).unwrap_err();
            assert!(matches!(error, BuildError::Content { .. }), "{error}");
            let error = error.to_string();
            let named = error.contains("dir/file") && error.contains(expected);
            assert!(named, "{error}");
        }
    }
    let mut tree = Tree::default();
    let metadata = std::fs::metadata("/").unwrap();
    let kind = NodeKind::File {
        len: 5,
        content: Content::Host(HostFile::named("/nowhere/at/all".into(), &metadata)),
    };
    tree.add(Tree::ROOT, b"gone", NewNode::new(kind, 0o644))
        .unwrap();
    let error = image(&tree, &fast()).unwrap_err().to_string();
    assert!(error.contains("gone: No such file"), "{error}");
}

#[test]
fn an_output_that_fails_is_an_error() {
    let tree = tree_of(&[("a", &generate::bytes(1, 5_000_000)), ("b", b"small")]);
    let whole = image(&tree, &fast()).unwrap().len();
    for (room, patches) in [(0, 1), (1, 1), (whole / 2, 1), (whole - 1, 1), (whole, 0)] {
        let mut out = Full { room, patches };
        let result = write(&tree, &fast(), &mut out, &Arc::new(Observer::default()));
        assert!(
            matches!(result, Err(BuildError::Output { .. })),
            "{room} {result:?}"
        );
    }
}

#[test]
fn every_byte_is_written_once_and_the_superblock_twice() {
    let observer = Arc::new(Observer::default());
    let len = write(&mixed(), &fast(), &mut Vec::new(), &observer).unwrap();
    assert_eq!(observer.stats().get(Counter::WrittenBytes), len + 96);
    let writes = observer.stats().get(Counter::Writes);
    assert!(
        writes <= len / (1 << 20) + 2 + len / 400_000,
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
    image(&tree, &fast()).unwrap();
}
