//! The on-disk fields of small volumes, as `info` and `dump` show them.

use std::sync::Arc;

use forerun_build::{Content, NewNode, NodeKind, Tree};
use forerun_exfat::fuzzing;
use forerun_exfat::write::{ExfatOptions, write};
use forerun_testkit::described;
use forerun_vfs::Timestamp;

use crate::common::open;

#[test]
fn every_kind() {
    insta::assert_snapshot!("every_kind", described(&open(&fuzzing::image())));
}

/// Returns a volume that the writer creates from a directory with a file of 5000 bytes and a
/// read-only file. Their times have odd seconds and hundredths of a second.
fn written() -> Vec<u8> {
    let mut tree = Tree::default();
    let add = |tree: &mut Tree, dir, name: &str, kind, mode| {
        let mut node = NewNode::new(kind, mode);
        node.mtime = Timestamp {
            seconds: 1_600_000_001,
            nanoseconds: 250_000_000,
        };
        tree.add(dir, name.as_bytes(), node).unwrap()
    };
    let file = |len: usize| NodeKind::File {
        len: len as u64,
        content: Content::Bytes(vec![7; len].into()),
    };
    let dir = NodeKind::Directory(Default::default());
    let dir = add(&mut tree, Tree::ROOT, "dir", dir, 0o755);
    add(
        &mut tree,
        dir,
        "a name of more than 15 units",
        file(5000),
        0o644,
    );
    add(&mut tree, dir, "read only", file(0), 0o444);
    let options = ExfatOptions {
        cluster_size: Some(512),
        label: b"golden".to_vec(),
        serial: Some(0x1234_5678),
        guid: Some(*b"0123456789abcdef"),
        ..ExfatOptions::default()
    };
    let mut image = Vec::new();
    write(&tree, &options, &mut image, &Arc::default()).unwrap();
    image
}

#[test]
fn a_volume_of_the_writer() {
    insta::assert_snapshot!("written", described(&open(&written())));
}
