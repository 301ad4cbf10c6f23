//! Trees from images: parts that are kept or left out, how contents are read, and errors.

use std::io::Read;

use forerun::EngineOptions;
use forerun::build::{
    BuildError, ContentStream, ImageOptions, NewNode, NodeIndex, NodeKind, Patterns, Tree,
    from_image,
};
use forerun_io::Counter;
use forerun_testkit::generate::pattern;
use forerun_testkit::opened::open;
use forerun_testkit::{MemFsBuilder, MemImage, Piece};
use forerun_vfs::{Device, Error, FileType, Timestamp};

const MIB: usize = 1 << 20;

fn all() -> ImageOptions {
    ImageOptions {
        xattrs: true,
        ..ImageOptions::default()
    }
}

fn find(tree: &Tree, path: &str) -> Option<NodeIndex> {
    path.split('/')
        .try_fold(Tree::ROOT, |dir, name| tree.child(dir, name.as_bytes()))
}

fn node<'t>(tree: &'t Tree, path: &str) -> &'t NewNode {
    tree.node(find(tree, path).unwrap_or_else(|| panic!("{path} is there")))
}

fn stream(node: &NewNode) -> Box<dyn ContentStream> {
    let NodeKind::File { len, content } = &node.kind else {
        panic!("a file")
    };
    content.open(*len).unwrap()
}

fn bytes(node: &NewNode) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream(node).read_to_end(&mut bytes).unwrap();
    bytes
}

fn sample() -> (MemImage, Vec<u8>) {
    let mut builder = MemFsBuilder::new();
    let data = pattern(MIB + 77, 1);
    let pieces = [
        Piece::Encoded {
            bytes: data.clone(),
            block_len: 128 << 10,
        },
        Piece::Zero(1 << 20),
        Piece::Stored(b"end".to_vec()),
    ];
    let file = builder.file("usr/bin/tool", pieces);
    builder.hard_link("usr/same", file);
    builder.hard_link("again", file);
    builder.xattr(file, b"user.a", b"value");
    builder.metadata(file, |metadata| {
        (metadata.mode, metadata.uid, metadata.gid) = (0o4751, 7, 8);
        metadata.mtime = Timestamp {
            seconds: -3,
            nanoseconds: 9,
        };
    });
    builder.symlink("usr/link", b"../again");
    let device = Device { major: 5, minor: 1 };
    builder.special("dev/console", FileType::CharDevice, device);
    builder.special("dev/disk", FileType::BlockDevice, device);
    builder.special("run/fifo", FileType::Fifo, Device::default());
    builder.special("run/sock", FileType::Socket, Device::default());
    builder.metadata(MemFsBuilder::ROOT, |metadata| metadata.mode = 0o711);
    (builder.build(), data)
}

#[test]
fn everything_is_kept() {
    let (image, data) = sample();
    let opened = open(&image, EngineOptions::default());
    let tree = from_image(&opened.reader, &all()).unwrap();
    assert_eq!(tree.node(Tree::ROOT).mode, 0o711);
    let tool = node(&tree, "usr/bin/tool");
    assert_eq!((tool.mode, tool.uid, tool.gid), (0o4751, 7, 8));
    assert_eq!((tool.mtime.seconds, tool.mtime.nanoseconds), (-3, 9));
    assert_eq!(tool.xattrs[&b"user.a"[..]], b"value");
    let first = find(&tree, "usr/bin/tool");
    assert_eq!(
        (find(&tree, "usr/same"), find(&tree, "again")),
        (first, first)
    );
    assert!(matches!(&node(&tree, "usr/link").kind, NodeKind::Symlink(to) if to == b"../again"));
    let device = Device { major: 5, minor: 1 };
    assert!(
        matches!(node(&tree, "dev/console").kind, NodeKind::CharDevice(found) if found == device)
    );
    assert!(
        matches!(node(&tree, "dev/disk").kind, NodeKind::BlockDevice(found) if found == device)
    );
    assert!(matches!(node(&tree, "run/fifo").kind, NodeKind::Fifo));
    assert!(matches!(node(&tree, "run/sock").kind, NodeKind::Socket));
    // No data was read.
    assert_eq!(opened.count(Counter::Decodes), 0);
    let mut expected = data;
    expected.resize(expected.len() + (1 << 20), 0);
    expected.extend_from_slice(b"end");
    assert!(bytes(tool) == expected);
    assert_eq!(opened.count(Counter::Decodes), 9);
    assert_eq!(opened.count(Counter::RepeatedDecodes), 0);
}

#[test]
fn what_is_excluded_is_left_out() {
    let (image, _) = sample();
    let opened = open(&image, EngineOptions::default());
    let options = ImageOptions {
        exclude: Patterns::new(["/usr/bin", "s*"]).unwrap(),
        xattrs: false,
        implied: None,
    };
    let tree = from_image(&opened.reader, &options).unwrap();
    for gone in ["usr/bin", "usr/same", "run/sock"] {
        assert!(find(&tree, gone).is_none(), "{gone}");
    }
    assert!(node(&tree, "again").xattrs.is_empty());
    assert!(find(&tree, "usr/link").is_some());
}

#[test]
fn a_huge_hole_costs_nothing_to_find() {
    let mut builder = MemFsBuilder::new();
    let hole = 1_u64 << 40;
    builder.file("sparse", [Piece::Zero(hole), Piece::Stored(vec![7; 10])]);
    let image = builder.build();
    let opened = open(&image, EngineOptions::default());
    let tree = from_image(&opened.reader, &all()).unwrap();
    let mut stream = stream(node(&tree, "sparse"));
    let mut chunk = vec![1; MIB];
    for _ in 0..100 {
        stream.read_exact(&mut chunk).unwrap();
        assert!(chunk.iter().all(|&byte| byte == 0));
        chunk.fill(1);
    }
    // Only the first chunk went through the engine: after it, the hole was known.
    assert!(opened.count(Counter::ServedBytes) <= 2 << 20);
    // A writer need not fill the rest with zeros either.
    let rest = hole - (100 << 20);
    assert_eq!(stream.hole().unwrap(), rest);
    stream.skip(rest - 1);
    assert_eq!(stream.hole().unwrap(), 1);
    let mut end = Vec::new();
    stream.read_to_end(&mut end).unwrap();
    assert_eq!(end, [0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
    assert_eq!(stream.hole().unwrap(), 0);
}

#[test]
fn damage_is_told_with_its_path() {
    let mut builder = MemFsBuilder::new();
    builder.file("a/fine", [Piece::Stored(b"x".to_vec())]);
    let bad = builder.file("a/bad", [Piece::Stored(b"x".to_vec())]);
    builder.damage(bad);
    let image = builder.build();
    let opened = open(&image, EngineOptions::default());
    let error = from_image(&opened.reader, &all()).unwrap_err();
    let BuildError::Image { path, source } = error else {
        panic!("{error}")
    };
    assert!(path == b"a/bad" && matches!(source, Error::Corrupt(_)));
    // Excluded paths cause no error.
    let options = ImageOptions {
        exclude: Patterns::new(["bad"]).unwrap(),
        ..all()
    };
    assert!(from_image(&opened.reader, &options).is_ok());
}

#[test]
fn hostile_trees_end() {
    let mut builder = MemFsBuilder::new();
    let dir = builder.dir("a/b");
    builder.raw_entry(dir, b"up", MemFsBuilder::ROOT);
    let opened = open(&builder.build(), EngineOptions::default());
    let error = from_image(&opened.reader, &all()).unwrap_err();
    assert!(
        matches!(
            &error,
            BuildError::Image {
                source: Error::DirectoryLoop { .. },
                ..
            }
        ),
        "{error}"
    );
    let mut builder = MemFsBuilder::new();
    let file = builder.file("x", [Piece::Inline(b"1".to_vec())]);
    builder.raw_entry(MemFsBuilder::ROOT, b"../y", file);
    let opened = open(&builder.build(), EngineOptions::default());
    let error = from_image(&opened.reader, &all()).unwrap_err();
    assert!(
        matches!(error, BuildError::Name { .. } | BuildError::Conflict { .. }),
        "{error}"
    );
    let mut builder = MemFsBuilder::new();
    let file = builder.file("x", [Piece::Inline(b"1".to_vec())]);
    builder.raw_entry(MemFsBuilder::ROOT, b"x", file);
    let opened = open(&builder.build(), EngineOptions::default());
    let error = from_image(&opened.reader, &all()).unwrap_err();
    assert_eq!(error.to_string(), "x: the name exists already");
}
