//! Lookups in long directories, which remember some names on their way.

use std::sync::Arc;

use forerun_build::{NewNode, Tree};
use forerun_io::{Counter, MemorySource, Observer};
use forerun_squashfs::Squashfs;
use forerun_squashfs::write::{Compress, SquashfsOptions, write};
use forerun_testkit::trees::file;
use forerun_vfs::{Error, FileSystem, NodeId, OpenWith};

/// Enough lookups to read more bytes than the listing has.
const MANY: usize = 600;

/// Creates an image with the directory `many`, which holds `count` files.
fn image(count: usize, compress: Compress) -> Vec<u8> {
    let mut tree = Tree::default();
    let dir = tree.add(Tree::ROOT, b"many", NewNode::directory()).unwrap();
    for n in 0..count {
        tree.add(dir, name(n).as_bytes(), file(b"")).unwrap();
    }
    let options = SquashfsOptions {
        compress,
        ..SquashfsOptions::default()
    };
    let mut out = Vec::new();
    write(&tree, &options, &mut out, &Arc::default()).unwrap();
    out
}

fn name(n: usize) -> String {
    format!("{:06}-{}", n * 2, "x".repeat(n % 40))
}

/// Opens the image without caching metadata blocks.
fn open(image: Vec<u8>) -> (Squashfs, NodeId, Arc<Observer>) {
    let mut with = OpenWith::new(Arc::new(MemorySource::new(image)));
    with.cache = 0;
    let observer = Arc::clone(&with.observer);
    let fs = Squashfs::open(with).unwrap();
    let dir = fs.lookup(fs.root(), b"many").unwrap().unwrap();
    (fs, dir, observer)
}

#[test]
fn remembered_names_lead_to_all_others() {
    let count = 5000;
    let (fs, dir, observer) = open(image(count, Compress::default()));
    let decodes = || observer.stats().get(Counter::MetadataDecodes);
    let mut found = Vec::new();
    let mut costs = Vec::new();
    for round in 0..2 {
        for step in 0..count {
            // Every name once, in shuffled order.
            let n = step * 2677 % count;
            let before = decodes();
            let node = fs.lookup(dir, name(n).as_bytes()).unwrap();
            costs.push(decodes() - before);
            assert!(node.is_some(), "{n}");
            match round {
                0 => found.push(node),
                _ => assert_eq!(node, found[step]),
            }
            let missing = format!("{:06}", n * 2 + 1);
            assert_eq!(fs.lookup(dir, missing.as_bytes()).unwrap(), None);
        }
    }
    for missing in [&b"!"[..], b"\xff"] {
        assert_eq!(fs.lookup(dir, missing).unwrap(), None);
    }
    // One block for the directory's inode, and one or two for its listing. Without remembered
    // names, the blocks of the indexes would be added.
    let most = *costs[MANY..].iter().max().unwrap();
    assert!(most <= 3, "{most} blocks");
    let by_index: u64 = costs[..10].iter().sum();
    let by_name: u64 = costs[MANY..MANY + 10].iter().sum();
    assert!(by_name < by_index, "{by_name} and {by_index} blocks");
}

#[test]
fn a_bad_entry_fails_no_lookup_of_one_before_it() {
    let count = 1000;
    let compress = Compress {
        inodes: false,
        ..Compress::default()
    };
    let mut image = image(count, compress);
    let last = name(count - 1);
    let at = image
        .windows(last.len())
        .rposition(|part| part == last.as_bytes());
    // Now the name sorts before the previous one.
    image[at.unwrap()] = b'!';
    let (fs, dir, _) = open(image);
    for _ in 0..3 {
        for n in 0..count - 1 {
            assert!(fs.lookup(dir, name(n).as_bytes()).unwrap().is_some());
        }
        let failed = fs.lookup(dir, last.as_bytes());
        assert!(matches!(failed, Err(Error::Corrupt(_))), "{failed:?}");
    }
}
