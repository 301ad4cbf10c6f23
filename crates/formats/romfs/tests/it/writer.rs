//! Images of the writer are read back as the original trees. Trees that do not fit are refused.

use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_build::{BuildError, Content, NewNode, NodeIndex, NodeKind, Tree};
use forerun_io::{Limits, MemorySource, Observer};
use forerun_romfs::{Romfs, RomfsOptions, write};
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::{TreeModel, generate};
use forerun_vfs::{Device, DirCursor, FileSystem, FileType, FollowLast, NodeId, Place, resolve};

fn file(bytes: &[u8], mode: u16) -> NewNode {
    let kind = NodeKind::File {
        len: bytes.len() as u64,
        content: Content::Bytes(bytes.into()),
    };
    NewNode::new(kind, mode)
}

/// Creates a tree with each kind of node, and hard links into another directory.
fn tree() -> Tree {
    let mut tree = Tree::default();
    let dir = tree.add(Tree::ROOT, b"dir", NewNode::directory()).unwrap();
    let sub = tree.add(dir, b"sub", NewNode::directory()).unwrap();
    let shared = tree
        .add(sub, b"shared", file(&generate::bytes(1, 5000), 0o644))
        .unwrap();
    tree.link(Tree::ROOT, b"another name", shared).unwrap();
    tree.link(dir, b"third", shared).unwrap();
    tree.add(Tree::ROOT, b"tool", file(b"#!/bin/sh\n", 0o755))
        .unwrap();
    tree.add(Tree::ROOT, b"nothing", file(b"", 0o600)).unwrap();
    let device = Device { major: 8, minor: 1 };
    for (name, kind) in [
        (&b"link"[..], NodeKind::Symlink(b"dir/sub/shared".to_vec())),
        (b"sda1", NodeKind::BlockDevice(device)),
        (b"tty", NodeKind::CharDevice(device)),
        (b"fifo", NodeKind::Fifo),
        (b"socket", NodeKind::Socket),
    ] {
        tree.add(Tree::ROOT, name, NewNode::new(kind, 0o644))
            .unwrap();
    }
    tree
}

fn image(tree: &Tree, options: &RomfsOptions) -> Result<Vec<u8>, BuildError> {
    let mut out = Vec::new();
    let len = write(tree, options, &mut out, &Arc::new(Observer::default()))?;
    assert_eq!(len, out.len() as u64);
    Ok(out)
}

fn open(image: &[u8]) -> Romfs {
    Romfs::open(
        Arc::new(MemorySource::new(image.to_vec())),
        &Limits::default(),
    )
    .unwrap()
}

fn find(romfs: &Romfs, path: &str) -> NodeId {
    resolve(romfs, path.as_bytes(), FollowLast::No, &Limits::default()).unwrap()
}

#[test]
fn every_kind_reads_back() {
    let bytes = image(&tree(), &RomfsOptions::default()).unwrap();
    assert_eq!(bytes.len() % 1024, 0);
    let romfs = open(&bytes);
    check_filesystem(&romfs, &Limits::default());
    let model = TreeModel::of_image(&romfs, &MemorySource::new(bytes)).unwrap();
    assert_eq!(model.nodes.len(), 13);
    let kind = |path: &str| romfs.metadata(find(&romfs, path)).unwrap();
    assert_eq!(kind("tool").mode, 0o755);
    assert_eq!(kind("nothing").mode, 0o644);
    assert_eq!(kind("dir").mode, 0o755);
    assert_eq!(kind("sda1").device, Device { major: 8, minor: 1 });
    assert_eq!(
        (kind("fifo").kind, kind("socket").kind),
        (FileType::Fifo, FileType::Socket)
    );
    assert_eq!(
        romfs.read_link(find(&romfs, "link")).unwrap(),
        b"dir/sub/shared"
    );
    assert_eq!(find(&romfs, "another name"), find(&romfs, "dir/sub/shared"));
    assert_eq!(find(&romfs, "another name"), find(&romfs, "dir/third"));
}

#[test]
fn the_same_tree_gives_the_same_image() {
    let options = RomfsOptions {
        volume_name: b"stable".to_vec(),
        align: 512,
    };
    assert_eq!(
        image(&tree(), &options).unwrap(),
        image(&tree(), &options).unwrap()
    );
    let romfs = open(&image(&tree(), &options).unwrap());
    assert_eq!(romfs.volume().label, b"stable");
}

#[test]
fn data_is_aligned_as_asked() {
    for align in [16, 64, 4096, 65536] {
        let bytes = image(
            &tree(),
            &RomfsOptions {
                align,
                ..RomfsOptions::default()
            },
        )
        .unwrap();
        let romfs = open(&bytes);
        for path in ["tool", "dir/sub/shared"] {
            romfs
                .map(find(&romfs, path), 0..u64::MAX, &mut |extent| {
                    let Place::Stored { offset, .. } = extent.place else {
                        panic!("{extent:?}")
                    };
                    assert_eq!(offset % u64::from(align), 0, "{path}");
                    ControlFlow::Continue(())
                })
                .unwrap();
        }
    }
}

#[test]
fn a_tree_that_does_not_fit_is_refused_before_anything_is_written() {
    let one = |name: &[u8], node: NewNode| {
        let mut tree = Tree::default();
        tree.add(Tree::ROOT, name, node).unwrap();
        tree
    };
    let huge = |len: u64| {
        NewNode::new(
            NodeKind::File {
                len,
                content: Content::Bytes(Arc::new([])),
            },
            0o644,
        )
    };
    let two_halves = {
        let mut tree = one(b"a", huge(3 << 30));
        tree.add(Tree::ROOT, b"b", huge(3 << 30)).unwrap();
        tree
    };
    let link = |len: usize| NewNode::new(NodeKind::Symlink(vec![b'x'; len]), 0o777);
    let device = |major, minor| NewNode::new(NodeKind::CharDevice(Device { major, minor }), 0o600);
    let nested = {
        let mut tree = Tree::default();
        let dir = tree.add(Tree::ROOT, b"dir", NewNode::directory()).unwrap();
        tree.add(dir, b"l", link(4096)).unwrap();
        tree
    };
    for (tree, expected) in [
        (nested, "dir/l: a link"),
        (one(b"big", huge(4 << 30)), "4294967296 bytes"),
        (
            one(b"absurd", huge(u64::MAX)),
            "absurd: a file of 18446744073709551615 bytes",
        ),
        (two_halves, "4 GiB"),
        (one(&[b'n'; 128], file(b"", 0)), "128 bytes"),
        (one(b"l", link(4096)), "4096 bytes"),
        (one(b"l", link(0)), "0 bytes"),
        (one(b"d", device(1 << 16, 0)), "65536:0"),
    ] {
        let mut out = Vec::new();
        let error = write(
            &tree,
            &RomfsOptions::default(),
            &mut out,
            &Arc::new(Observer::default()),
        )
        .unwrap_err();
        assert!(
            matches!(error, BuildError::Format { .. }) && error.to_string().contains(expected),
            "{error}"
        );
        assert!(out.is_empty());
    }
}

#[test]
fn options_that_do_not_fit_are_refused() {
    for volume_name in [vec![b'v'; 128], b"v\0".to_vec()] {
        let options = RomfsOptions {
            volume_name,
            ..RomfsOptions::default()
        };
        let error = image(&tree(), &options).unwrap_err().to_string();
        assert!(error.contains("volume name of"), "{error}");
    }
    for align in [0, 8, 24, 1 << 17] {
        let error = image(
            &tree(),
            &RomfsOptions {
                align,
                ..RomfsOptions::default()
            },
        )
        .unwrap_err();
        assert!(error.to_string().contains("alignment"), "{error}");
    }
    let volume_name = vec![b'v'; 256];
    assert!(
        image(
            &tree(),
            &RomfsOptions {
                volume_name,
                ..RomfsOptions::default()
            }
        )
        .is_err()
    );
}

#[test]
fn a_file_that_changed_is_an_error_that_names_it() {
    for (len, now) in [(5, "longer"), (7, "shorter")] {
        let mut tree = Tree::default();
        let dir = tree.add(Tree::ROOT, b"dir", NewNode::directory()).unwrap();
        let kind = NodeKind::File {
            len,
            content: Content::Bytes(b"sixsix"[..].into()),
        };
        tree.add(dir, b"file", NewNode::new(kind, 0o644)).unwrap();
        let error = image(&tree, &RomfsOptions::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("dir/file") && error.contains(now), "{error}");
    }
}

#[test]
fn an_output_that_fails_is_an_error_that_says_where() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.0 == 0 {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            let len = bytes.len().min(self.0);
            self.0 -= len;
            Ok(len)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let whole = image(&tree(), &RomfsOptions::default()).unwrap().len();
    for room in 0..whole {
        let result = write(
            &tree(),
            &RomfsOptions::default(),
            &mut Full(room),
            &Arc::new(Observer::default()),
        );
        assert!(matches!(result, Err(BuildError::Output { .. })), "{room}");
    }
}

#[test]
fn a_deep_tree_takes_no_stack() {
    let mut tree = Tree::default();
    let mut dir: NodeIndex = Tree::ROOT;
    for _ in 0..100_000 {
        dir = tree.add(dir, b"d", NewNode::directory()).unwrap();
    }
    let romfs = open(&image(&tree, &RomfsOptions::default()).unwrap());
    let mut node = romfs.root();
    for _ in 0..100_000 {
        node = romfs.lookup(node, b"d").unwrap().unwrap();
    }
    romfs
        .read_dir(node, DirCursor::START, &mut |entry| panic!("{entry:?}"))
        .unwrap();
}
