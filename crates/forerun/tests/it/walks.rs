//! A walk with readahead returns the same tree, and costs no more requests.

use std::sync::Arc;

use forerun::build::{Content, NewNode, NodeKind, RomfsOptions, Tree};
use forerun::{EngineOptions, Image, MemorySource, Observer, OpenOptions, Writer};
use forerun_io::Counter;

#[test]
fn each_block_of_metadata_is_read_once() {
    let mut tree = Tree::default();
    for n in 0..60 {
        let dir = tree
            .add(
                Tree::ROOT,
                format!("dir-{n:02}").as_bytes(),
                NewNode::directory(),
            )
            .unwrap();
        for m in 0..20u8 {
            // Large enough that no two headers share a block, and far enough apart for single
            // requests.
            let kind = NodeKind::File {
                len: 30_000,
                content: Content::Bytes(vec![m; 30_000].into()),
            };
            tree.add(
                dir,
                format!("file-{m}").as_bytes(),
                NewNode::new(kind, 0o644),
            )
            .unwrap();
        }
    }
    let mut bytes = Vec::new();
    Writer::Romfs(RomfsOptions::default())
        .write(&tree, &mut bytes, &Arc::new(Observer::default()))
        .unwrap();
    let walk = |readahead| {
        let engine = EngineOptions {
            readahead,
            threads: 4,
            ..EngineOptions::default()
        };
        let options = OpenOptions {
            engine,
            ..OpenOptions::default()
        };
        let image =
            Image::from_source(Arc::new(MemorySource::new(bytes.clone())), &options).unwrap();
        let reader = image.reader();
        let paths: Vec<_> = reader
            .walk(reader.fs().root())
            .map(|entry| entry.unwrap())
            .inspect(|entry| assert!(entry.metadata.is_ok()))
            .map(|entry| entry.path)
            .collect();
        (
            paths,
            reader.observer().stats().get(Counter::SourceRequests),
        )
    };
    let (ahead, with) = walk(8 << 20);
    let (plain, without) = walk(0);
    assert_eq!(ahead, plain);
    assert_eq!(ahead.len(), 1 + 60 * 21);
    assert!(
        with <= without && without >= 1200,
        "{with} requests instead of {without}"
    );
}
