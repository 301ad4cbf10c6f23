//! Endless images and failing sources: bounded time, and errors that do not persist.

use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_build::{Content, NewNode, NodeKind, Tree};
use forerun_io::{Limits, MemorySource, Observer};
use forerun_romfs::{FORMAT, Romfs, RomfsOptions, write};
use forerun_testkit::conformance::check_faults;
use forerun_testkit::{CountingSource, FaultSource};
use forerun_vfs::{DirCursor, Error, FileSystem, NodeId, Walk};

use crate::common::*;

#[test]
fn headers_are_read_in_small_pieces() {
    let counting = CountingSource::new(MemorySource::new(sample()));
    let romfs = Romfs::open(Arc::new(counting.clone()), &Limits::default()).unwrap();
    counting.take_log();
    let at = |offset: usize| offset as u64..offset as u64 + 32;
    romfs.metadata(NodeId(FILE as u64)).unwrap();
    assert_eq!(counting.take_log(), [at(FILE)]);
    // The directory, its chain, and the target of the hard link; no request after that.
    romfs.lookup(romfs.root(), b"hard").unwrap();
    assert_eq!(
        counting.take_log(),
        [
            at(ROOT),
            at(ROOT),
            at(DOTS),
            at(DIR),
            at(FILE),
            at(HARD),
            at(FILE),
            at(LINK)
        ]
    );
    for name in [&b"dir"[..], b"file", b"hard", b"link", b"nothing"] {
        romfs.lookup(romfs.root(), name).unwrap();
    }
    assert_eq!(counting.take_log(), []);
}

#[test]
fn hard_links_are_followed_as_far_as_the_limit() {
    // A row of hard links, each to the next, the last to a file.
    let chain = |links: usize| {
        let mut image = vec![0; 1024];
        image[..8].copy_from_slice(b"-rom1fs-");
        image[8..12].copy_from_slice(&1024u32.to_be_bytes());
        let mut header = |at: usize, next: u32, info: usize, name: u8| {
            image[at..at + 4].copy_from_slice(&next.to_be_bytes());
            image[at + 4..at + 8].copy_from_slice(&(info as u32).to_be_bytes());
            image[at + 16] = name;
        };
        header(0x20, 9, 0x40, b'.');
        for n in 0..links {
            header(
                0x40 + n * 32,
                0x40 + (n as u32 + 1) * 32,
                0x40 + (n + 1) * 32,
                b'a' + n as u8,
            );
        }
        header(0x40 + links * 32, 2, 0, b'z');
        fix_checksum(&mut image);
        use_it(source(image))
    };
    assert!(chain(8).is_empty());
    let errors = chain(9);
    assert!(
        errors[0].to_string().contains("more than 8 hard links"),
        "{errors:?}"
    );
}

#[test]
fn a_chain_with_no_end_is_bounded_without_an_index_too() {
    let image = with_word(LINK, ROOT as u32 | 3);
    let mut limits = Limits::default();
    limits.dir_index_bytes = 0;
    let romfs = Romfs::open(source(image), &limits).unwrap();
    let mut seen = 0;
    let mut cursor = DirCursor::START;
    // A few entries at a time, as in a mount.
    let error = loop {
        let mut left = 3;
        let result = romfs.read_dir(romfs.root(), cursor, &mut |entry| {
            cursor = entry.next;
            (seen, left) = (seen + 1, left - 1);
            if left == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        if let Err(error) = result {
            break error;
        }
        assert!(seen < 1000);
    };
    assert!(
        error.to_string().contains("more than 11 headers"),
        "{error}"
    );
    assert!(romfs.lookup(romfs.root(), b"missing").is_err());
    assert!(romfs.lookup(romfs.root(), b"file").unwrap().is_some());
}

#[test]
fn a_directory_too_large_for_the_index_reads_the_same() {
    let mut limits = Limits::default();
    limits.dir_index_bytes = 0;
    let romfs = Romfs::open(source(sample()), &limits).unwrap();
    forerun_testkit::conformance::check_filesystem(&romfs, &limits);
}

#[test]
fn a_fault_at_any_read_is_an_error_once_and_forgotten() {
    check_faults(&FORMAT, &sample());
}

#[test]
fn an_unreadable_header_hides_only_what_comes_behind_it() {
    // The first file keeps the others out of the first 512 bytes, which opening reads.
    let mut tree = Tree::default();
    for (name, len) in [(b"a", 600), (b"b", 600), (b"c", 1), (b"d", 1)] {
        let content = Content::Bytes(vec![b'x'; len].into());
        let kind = NodeKind::File {
            len: len as u64,
            content,
        };
        tree.add(Tree::ROOT, name, NewNode::new(kind, 0o644))
            .unwrap();
    }
    let mut image = Vec::new();
    write(
        &tree,
        &RomfsOptions::default(),
        &mut image,
        &Arc::new(Observer::default()),
    )
    .unwrap();
    let sound = Romfs::open(source(image.clone()), &Limits::default()).unwrap();
    let bad = sound.lookup(sound.root(), b"c").unwrap().unwrap().0;

    let fault = FaultSource::bad_range(MemorySource::new(image), bad..bad + 4);
    let romfs = Romfs::open(Arc::new(fault), &Limits::default()).unwrap();
    for name in [b"a", b"b"] {
        assert!(romfs.lookup(romfs.root(), name).unwrap().is_some());
    }
    for name in [&b"c"[..], b"d", b"missing"] {
        assert!(matches!(
            romfs.lookup(romfs.root(), name),
            Err(Error::Io { .. })
        ));
    }
    let mut seen = Vec::new();
    let result = romfs.read_dir(romfs.root(), DirCursor::START, &mut |entry| {
        seen.push(entry.name.to_vec());
        ControlFlow::Continue(())
    });
    assert!(matches!(result, Err(Error::Io { .. })));
    assert_eq!(seen, [b"a", b"b"]);
}

#[test]
fn directories_that_share_their_entries_do_not_multiply() {
    // Thirty levels, each of two directories that both lead to the next level: 2^30 paths.
    const LEVELS: usize = 30;
    let mut image = vec![0; 4096];
    image[..8].copy_from_slice(b"-rom1fs-");
    image[8..12].copy_from_slice(&4096u32.to_be_bytes());
    let mut header = |at: usize, next: usize, first: usize, name: u8| {
        image[at..at + 4].copy_from_slice(&(next as u32 | 9).to_be_bytes());
        image[at + 4..at + 8].copy_from_slice(&(first as u32).to_be_bytes());
        image[at + 16] = name;
    };
    header(0x20, 0, 0x40, b'.');
    for level in 0..LEVELS {
        let at = 0x40 + level * 64;
        let first = if level + 1 < LEVELS { at + 64 } else { 0 };
        header(at, at + 32, first, b'a');
        header(at + 32, 0, first, b'b');
    }
    fix_checksum(&mut image);
    let romfs = Romfs::open(source(image), &Limits::default()).unwrap();
    let limits = Limits::default();
    let walk = Walk::new(&romfs, romfs.root(), &limits);
    let (found, errors): (Vec<_>, Vec<_>) = walk.partition(Result::is_ok);
    assert!(found.len() <= 129 && !errors.is_empty(), "{}", found.len());
    assert!(
        errors
            .into_iter()
            .flat_map(Result::err)
            .all(|failed| { matches!(failed.error, Error::Limit { .. }) })
    );
}

#[test]
fn foreign_ids_are_no_nodes() {
    let romfs = Romfs::open(source(sample()), &Limits::default()).unwrap();
    for id in [0, 1, 16, 33, HARD as u64, 1 << 20, u64::MAX] {
        assert!(
            matches!(romfs.metadata(NodeId(id)), Err(Error::StaleNode(_))),
            "{id}"
        );
    }
}
