//! The number of requests, and failing sources.

use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_cramfs::fuzzing::everything;
use forerun_cramfs::fuzzing::maker::{Blocks, Kind, Layout, Node};
use forerun_cramfs::{Cramfs, FORMAT};
use forerun_io::{Limits, MemorySource};
use forerun_testkit::conformance::{check_faults, check_filesystem};
use forerun_testkit::{CountingSource, FaultSource};
use forerun_vfs::{DirCursor, Error, FileSystem, NodeId, Walk};

use crate::common::{DIR, FILE, FILE_BLOCKS, FILE_TABLE, LINK, sample};

#[test]
fn a_directory_is_read_once_and_no_file_data_at_all() {
    let counting = CountingSource::new(MemorySource::new(sample()));
    let fs = Cramfs::open(Arc::new(counting.clone()), &Limits::default()).unwrap();
    let head = 0..588;
    assert_eq!(counting.take_log(), [head]);
    let file = fs.lookup(fs.root(), b"file").unwrap().unwrap();
    assert_eq!(file, NodeId(FILE as u64));
    let entries = DIR as u64..(LINK + 16) as u64;
    assert_eq!(counting.take_log(), [entries]);
    for name in [&b"dir"[..], b"link", b"missing"] {
        fs.lookup(fs.root(), name).unwrap();
    }
    assert_eq!(counting.take_log(), []);
    let map = |range| fs.map(file, range, &mut |_| ControlFlow::Continue(()));
    let (inode, table) = (FILE as u64..(FILE + 12) as u64, FILE_TABLE as u64);
    map(0..u64::MAX).unwrap();
    let whole = table..table + 4 * FILE_BLOCKS as u64;
    assert_eq!(counting.take_log(), [inode.clone(), whole]);
    // For a part of the file, only its pointers and the one before them are read.
    map(8192..8193).unwrap();
    assert_eq!(counting.take_log(), [inode, table + 4..table + 12]);
}

#[test]
fn a_directory_that_is_not_kept_reads_the_same() {
    let mut limits = Limits::default();
    limits.dir_index_bytes = 0;
    let image = Layout::extended().image(&everything(Blocks::Mixed));
    let fs = Cramfs::open(Arc::new(MemorySource::new(image)), &limits).unwrap();
    check_filesystem(&fs, &limits);
}

#[test]
fn a_fault_at_any_read_is_an_error_once_and_forgotten() {
    check_faults(&FORMAT, &sample());
}

#[test]
fn entries_before_an_unreadable_place_are_shown() {
    let names: Vec<_> = (10_000..20_000).map(|n: u32| n.to_string()).collect();
    let nodes: Vec<_> = names
        .iter()
        .map(|name| Node::file(name.as_bytes(), b""))
        .collect();
    let image = Layout::default().image(&nodes);
    let bad = 76 + (64 << 10) + 5;
    let source = FaultSource::bad_range(MemorySource::new(image), bad..bad + 1);
    let fs = Cramfs::open(Arc::new(source), &Limits::default()).unwrap();
    let mut listed = 0;
    let result = fs.read_dir(fs.root(), DirCursor::START, &mut |_| {
        listed += 1;
        ControlFlow::Continue(())
    });
    assert!(matches!(result, Err(Error::Io { .. })), "{result:?}");
    // All entries that are complete in the 64 KiB before.
    assert_eq!(listed, (64 << 10) / 20);
    assert!(fs.lookup(fs.root(), b"10000").unwrap().is_some());
    for name in [&b"19999"[..], b"missing"] {
        let result = fs.lookup(fs.root(), name);
        assert!(matches!(result, Err(Error::Io { .. })), "{result:?}");
    }
}

#[test]
fn directories_that_share_their_entries_do_not_multiply() {
    // Thirty levels, each of two directories that both lead to the next level: 2^30 paths.
    let mut level = Vec::new();
    for _ in 0..30 {
        let empty = Node::new(b"b", Kind::Directory(Vec::new()));
        level = vec![Node::new(b"a", Kind::Directory(level)), empty];
    }
    let mut image = Layout::default().image(&level);
    // An inode of 12 bytes and a name of 4: the second gets the offset and size of the first.
    for at in (76..76 + 29 * 32).step_by(32) {
        image.copy_within(at + 4..at + 12, at + 20);
    }
    Layout::default().sum(&mut image);
    let limits = Limits::default();
    let names = image.len() / 16;
    let fs = Cramfs::open(Arc::new(MemorySource::new(image)), &limits).unwrap();
    let walk = Walk::new(&fs, fs.root(), &limits);
    let (found, errors): (Vec<_>, Vec<_>) = walk.partition(Result::is_ok);
    assert!(found.len() <= names + 1, "{} of {names}", found.len());
    assert!(!errors.is_empty());
    for failed in errors.into_iter().flat_map(Result::err) {
        assert!(matches!(failed.error, Error::Limit { .. }));
    }
}

#[test]
fn damaged_entries_do_not_keep_a_directory_busy() {
    // A million entries without a name.
    let mut image = Layout::default().image(&[]);
    image.resize(76 + 12 * (1 << 20), 0);
    let len = (image.len() as u32).to_le_bytes();
    image[4..8].copy_from_slice(&len);
    image[68..71].copy_from_slice(&(12_u32 << 20).to_le_bytes()[..3]);
    let counting = CountingSource::new(MemorySource::new(image));
    let fs = Cramfs::open(Arc::new(counting.clone()), &Limits::default()).unwrap();
    let error = fs.lookup(fs.root(), b"x").unwrap_err().to_string();
    assert!(
        error.contains("offset 0x4c: the entry has no name"),
        "{error}"
    );
    // One read is enough to detect it.
    assert_eq!(counting.take_log(), [0..588, 76..76 + (64 << 10)]);
}

#[test]
fn foreign_ids_are_no_nodes() {
    let fs = crate::common::open(&sample());
    let len = fs.volume().image_len;
    for id in [0, 1, 60, 65, 72, 77, len - 8, len, 1 << 32, u64::MAX] {
        let result = fs.metadata(NodeId(id));
        assert!(matches!(result, Err(Error::StaleNode(_))), "{id}");
    }
}
