//! Volumes of the writer, checked by `fsck.exfat` and by a checker that shares no code with this
//! crate, and read by `exfat-fuse`.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use forerun_build::{BuildError, Content, NewNode, NodeKind, Tree};
use forerun_build::{LossKind, NotKept, not_kept};
use forerun_exfat::write::{ExfatOptions, KEPT, write};
use forerun_io::{FileSource, MemorySource, Observer, ReadAt};
use forerun_testkit::exfat_judge::{Report, judge};
use forerun_testkit::exfat_tools::assert_clean;
use forerun_testkit::{Mounted, require, temp_dir};
use forerun_vfs::Timestamp;

fn file(bytes: impl Into<Vec<u8>>) -> NewNode {
    let bytes: Vec<u8> = bytes.into();
    let mut node = NewNode::new(
        NodeKind::File {
            len: bytes.len() as u64,
            content: Content::Bytes(bytes.into()),
        },
        0o644,
    );
    node.mtime = Timestamp {
        seconds: 1_600_000_001,
        nanoseconds: 250_000_000,
    };
    node
}

/// Creates directories, names of every relevant length, and files around the size of a cluster.
fn tree() -> Tree {
    let mut tree = Tree::default();
    let dir = tree.add(Tree::ROOT, b"dir", NewNode::directory()).unwrap();
    let below = tree.add(dir, b"below", NewNode::directory()).unwrap();
    tree.add(below, b"empty directory", NewNode::directory())
        .unwrap();
    for len in [0_usize, 1, 511, 512, 4095, 4096, 4097, 100_000] {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8 + 1).collect();
        tree.add(dir, format!("{len}").as_bytes(), file(bytes))
            .unwrap();
    }
    for len in [15, 16, 255] {
        let name = "n".repeat(len);
        tree.add(below, name.as_bytes(), file(name.as_bytes()))
            .unwrap();
    }
    let smile = "\u{1F600}".repeat(127);
    tree.add(below, smile.as_bytes(), file(b"pairs")).unwrap();
    tree.add(Tree::ROOT, "\u{e4}\u{20ac}".as_bytes(), file(b"x"))
        .unwrap();
    let many = tree.add(Tree::ROOT, b"many", NewNode::directory()).unwrap();
    for number in 0..1000 {
        tree.add(many, format!("file {number}").as_bytes(), file(vec![]))
            .unwrap();
    }
    tree
}

fn pack(tree: &Tree, options: &ExfatOptions) -> Vec<u8> {
    let mut image = Vec::new();
    let len = write(tree, options, &mut image, &Arc::new(Observer::default())).unwrap();
    assert_eq!(len, image.len() as u64);
    image
}

fn refused(tree: &Tree, options: &ExfatOptions) -> String {
    let mut image = Vec::new();
    let error = write(tree, options, &mut image, &Arc::default()).unwrap_err();
    assert!(image.is_empty(), "something was written");
    assert!(matches!(error, BuildError::Format { .. }), "{error}");
    error.to_string()
}

fn check(image: &[u8], tree: &Tree) -> Report {
    check_source(&MemorySource::new(image.to_vec()), tree)
}

fn check_source(source: &dyn ReadAt, tree: &Tree) -> Report {
    let report = judge(source).unwrap();
    assert!(report.clean(), "{:?}", report.findings);
    for (index, node) in report.nodes.iter().enumerate() {
        let mut path = vec![node.name.as_bytes()];
        let mut parent = node.parent;
        while let Some(at) = parent {
            path.push(report.nodes[at].name.as_bytes());
            parent = report.nodes[at].parent;
        }
        let found = path.iter().rev().fold(Tree::ROOT, |dir, name| {
            tree.child(dir, name).unwrap_or_else(|| panic!("{name:?}"))
        });
        match &tree.node(found).kind {
            NodeKind::Directory(_) => assert!(node.directory),
            NodeKind::File { content, len } => {
                let mut bytes = Vec::new();
                let mut content = content.open(*len).unwrap();
                std::io::Read::read_to_end(&mut content, &mut bytes).unwrap();
                let stored = report.content(source, node, u64::MAX).unwrap();
                assert!(stored == bytes, "node {index} {}", node.name);
            }
            other => panic!("{other:?}"),
        }
    }
    report
}

#[test]
fn an_empty_tree_is_the_smallest_volume() {
    let image = pack(&Tree::default(), &ExfatOptions::default());
    assert_eq!(image.len(), 1 << 20);
    assert!(check(&image, &Tree::default()).nodes.is_empty());
}

#[test]
fn a_volume_is_as_long_as_its_contents_need() {
    let mut tree = Tree::default();
    tree.add(Tree::ROOT, b"file", file(vec![1; 8 << 20]))
        .unwrap();
    for cluster_size in [None, Some(512), Some(65536)] {
        let options = ExfatOptions {
            cluster_size,
            ..ExfatOptions::default()
        };
        let image = pack(&tree, &options);
        let report = check(&image, &tree);
        assert_eq!(
            report.allocated, report.geometry.clusters,
            "{cluster_size:?}"
        );
        let less = ExfatOptions {
            size: Some(image.len() as u64 - report.geometry.cluster),
            ..options
        };
        let said = refused(&tree, &less);
        assert!(
            said.contains(&format!("take {} bytes", image.len())),
            "{said}"
        );
    }
}

#[test]
fn the_same_tree_gives_the_same_volume() {
    let options = ExfatOptions::default();
    assert!(pack(&tree(), &options) == pack(&tree(), &options));
    let mut other = tree();
    other.add(Tree::ROOT, b"one more", file(vec![])).unwrap();
    let serial = |image: &[u8]| {
        judge(&MemorySource::new(image.to_vec()))
            .unwrap()
            .geometry
            .serial
    };
    assert_ne!(
        serial(&pack(&tree(), &options)),
        serial(&pack(&other, &options))
    );
}

#[test]
fn names_it_cannot_hold_are_all_listed() {
    let mut tree = Tree::default();
    let dir = tree.add(Tree::ROOT, b"dir", NewNode::directory()).unwrap();
    let long = "n".repeat(256);
    for name in [
        "a:b", "what?", "README", "Readme", "dot.", &long, "\u{e4}", "\u{c4}", "fine",
    ] {
        tree.add(dir, name.as_bytes(), file(vec![])).unwrap();
    }
    tree.add(dir, b"\xff", file(vec![])).unwrap();
    let said = refused(&tree, &ExfatOptions::default());
    for part in [
        "dir/a:b: ",
        "dir/what?: ",
        "dir/Readme: differs only in case from dir/README",
        "dir/dot.: ends with a dot",
        "longer than 255",
        "dir/\u{e4}: differs only in case from dir/\u{c4}",
        "not UTF-8",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(!said.contains("fine"), "{said}");
    let mut dots = Tree::default();
    dots.add(Tree::ROOT, b"dot.", file(vec![])).unwrap();
    let keep = ExfatOptions {
        keep_last_dots: true,
        ..ExfatOptions::default()
    };
    assert!(check(&pack(&dots, &keep), &dots).find("dot.").is_some());
}

#[test]
fn options_out_of_their_ranges_are_refused() {
    let base = ExfatOptions::default;
    let wrong = [
        ExfatOptions {
            sector_size: 256,
            ..base()
        },
        ExfatOptions {
            sector_size: 4096,
            cluster_size: Some(2048),
            ..base()
        },
        ExfatOptions {
            cluster_size: Some(64 << 20),
            ..base()
        },
        ExfatOptions {
            cluster_size: Some(3000),
            ..base()
        },
        ExfatOptions {
            align: Some(100),
            ..base()
        },
        ExfatOptions {
            label: b"twelve units".to_vec(),
            ..base()
        },
        ExfatOptions {
            label: b"a:b".to_vec(),
            ..base()
        },
        ExfatOptions {
            size: Some((1 << 20) - 1),
            ..base()
        },
        ExfatOptions {
            size: Some(1 << 45),
            cluster_size: Some(512),
            ..base()
        },
    ];
    for options in wrong {
        refused(&Tree::default(), &options);
    }
}

#[test]
fn what_is_lost_is_told() {
    let mut tree = Tree::default();
    let add = |tree: &mut Tree, name: &str, kind| {
        tree.add(Tree::ROOT, name.as_bytes(), NewNode::new(kind, 0o644))
            .unwrap()
    };
    add(&mut tree, "link", NodeKind::Symlink(b"x".to_vec()));
    add(&mut tree, "pipe", NodeKind::Fifo);
    add(&mut tree, "socket", NodeKind::Socket);
    let mut set_id = file(b"x");
    set_id.mode = 0o4755;
    set_id.xattrs.insert(b"user.a".to_vec(), b"b".to_vec());
    let first = tree.add(Tree::ROOT, b"file", set_id).unwrap();
    tree.link(Tree::ROOT, b"second", first).unwrap();
    let mut old = file(b"old");
    old.mtime.seconds = 0;
    tree.add(Tree::ROOT, b"old", old).unwrap();
    let lost = not_kept(&tree, &KEPT);
    let counts: Vec<(LossKind, u64)> = lost.iter().map(|lost| (lost.what, lost.count)).collect();
    assert_eq!(
        counts,
        [
            (LossKind::Symlink, 1),
            (LossKind::Special, 2),
            (LossKind::HardLink, 1),
            (LossKind::Xattrs, 2),
            (LossKind::SpecialBits, 2),
            (LossKind::Time, 1),
        ]
    );
    let NotKept { examples, .. } = &lost[1];
    assert_eq!(*examples, [b"pipe".to_vec(), b"socket".to_vec()]);
    let report = check(&pack(&tree, &ExfatOptions::default()), &tree);
    let names: Vec<&str> = report.nodes.iter().map(|node| &*node.name).collect();
    assert_eq!(names, ["file", "old", "second"]);
}

#[test]
fn zeros_are_holes_and_tails_need_not_be_valid() {
    let dir = temp_dir("exfat-sparse");
    let mut tree = Tree::default();
    let mut bytes = vec![0; 20 << 20];
    bytes[5 << 20] = 1;
    tree.add(Tree::ROOT, b"sparse", file(bytes)).unwrap();
    tree.add(Tree::ROOT, b"zeros", file(vec![0; 3 << 20]))
        .unwrap();
    for sparse_tails in [false, true] {
        let path = dir.path().join(format!("{sparse_tails}"));
        let mut out = File::create_new(&path).unwrap();
        let options = ExfatOptions {
            size: Some(40 << 30),
            sparse_tails,
            ..ExfatOptions::default()
        };
        write(&tree, &options, &mut out, &Arc::default()).unwrap();
        let metadata = path.metadata().unwrap();
        assert_eq!(metadata.len(), 40 << 30);
        let stored = metadata.blocks() * 512;
        assert!(stored < 1 << 20, "{stored} bytes are stored");
        assert_clean(&path);
        let report = judge(&FileSource::open(&path).unwrap()).unwrap();
        assert!(report.clean(), "{:?}", report.findings);
        let valid = |name: &str| report.find(name).unwrap().valid;
        if sparse_tails {
            assert_eq!(
                (valid("sparse"), valid("zeros")),
                ((5 << 20) + (128 << 10), 0)
            )
        } else {
            assert_eq!((valid("sparse"), valid("zeros")), (20 << 20, 3 << 20))
        }
    }
}

#[test]
fn a_file_that_changed_is_an_error() {
    for (len, is) in [(3, "longer"), (5, "shorter")] {
        let mut tree = Tree::default();
        let content = Content::Bytes(Arc::from(&b"four"[..]));
        let node = NewNode::new(NodeKind::File { len, content }, 0o644);
        tree.add(Tree::ROOT, b"file", node).unwrap();
        let mut out = Vec::new();
        let error = write(&tree, &ExfatOptions::default(), &mut out, &Arc::default());
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("file: ") && error.contains(is), "{error}");
    }
}

#[test]
fn exfat_fuse_reads_it() {
    if !require::root() || !require::fuse() || require::program("mount.exfat-fuse").is_none() {
        return;
    }
    let dir = temp_dir("exfat-fuse");
    let image = dir.path().join("image");
    let tree = tree();
    fs::write(&image, pack(&tree, &ExfatOptions::default())).unwrap();
    let mount = dir.path().join("mount");
    let mounted = Mounted::exfat_fuse(&image, mount.clone(), "ro", &[]);
    let read = |path: &str| fs::read(mount.join(path));
    let listed = fs::read_dir(mount.join("many")).map(Iterator::count);
    let seen = (read("dir/100000"), read("\u{e4}\u{20ac}"), listed);
    let time = mount
        .join("dir/4097")
        .metadata()
        .map(|metadata| metadata.mtime());
    drop(mounted);
    assert_eq!(seen.0.unwrap().len(), 100_000);
    assert_eq!(seen.1.unwrap(), b"x");
    assert_eq!(seen.2.unwrap(), 1000);
    assert_eq!(time.unwrap(), 1_600_000_001);
}
