//! Lists of files: all bytes are right, and blocks are read and decoded once.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forerun_engine::{Bulk, EngineOptions};
use forerun_io::{Counter, Pattern, ReadAt};
use forerun_testkit::{FaultSource, MemFsBuilder, MemImage, Piece};
use forerun_vfs::{Extent, NodeId};

use crate::common::{KIB, MIB, Opened, open, open_on, pattern};

fn options(threads: usize) -> EngineOptions {
    EngineOptions {
        threads,
        ..EngineOptions::default()
    }
}

/// Reads a list on three threads, each file extent by extent, and compares the bytes. Returns their
/// number.
fn read_all(opened: &Opened, image: &MemImage, bulk: &Bulk) -> u64 {
    let total = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(taken) = bulk.take() {
                    let size = opened.reader.fs().metadata(taken.node).unwrap().size;
                    for extent in extents(opened, taken.node, size) {
                        let range = extent.logical.start..extent.logical.end.min(size);
                        let data = bulk.read(&taken, range.clone(), Some(&extent)).unwrap();
                        assert!(
                            data[..] == image.fs.content(taken.node, range.clone()),
                            "{range:?} of {:?}",
                            taken.node
                        );
                        total.fetch_add(range.end - range.start, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    total.into_inner()
}

fn extents(opened: &Opened, node: NodeId, size: u64) -> Vec<Extent> {
    let mut extents = Vec::new();
    if size > 0 {
        let fs = opened.reader.fs();
        fs.map(node, 0..size, &mut |extent| {
            extents.push(extent);
            ControlFlow::Continue(())
        })
        .unwrap();
    }
    extents
}

/// Creates files of one block and of many blocks, with holes, with inline data, and with tails that
/// share a block.
fn mixed(builder: &mut MemFsBuilder) -> Vec<NodeId> {
    let tails = pattern(64 * KIB, 99);
    let shared = builder.encode(&tails);
    let mut files = Vec::new();
    for n in 0..200_usize {
        let tail = n % 64 * KIB..(n % 64 + 1) * KIB;
        let pieces = vec![
            Piece::Encoded {
                bytes: pattern(n * 900 + 1, n as u64),
                block_len: 32 * KIB,
            },
            Piece::Zero(5000),
            Piece::Stored(pattern(n * 10 + 1, n as u64)),
            Piece::Inline(pattern(77, n as u64)),
            Piece::Fragment {
                block: shared,
                skip: tail.start as u32,
                bytes: tails[tail].to_vec(),
            },
        ];
        files.push(builder.file(&format!("{}/{n}", n % 7), pieces));
    }
    files.push(builder.file("empty", []));
    let bytes = pattern(9 * MIB, 1);
    let block_len = 128 * KIB;
    files.push(builder.file("large", [Piece::Encoded { bytes, block_len }]));
    files
}

#[test]
fn each_block_is_decoded_once_and_all_bytes_are_right() {
    let mut builder = MemFsBuilder::new();
    let files = mixed(&mut builder);
    let image = builder.build();
    for threads in [1, 3] {
        let opened = open(&image, options(threads));
        let mut total = 0;
        for bulk in [
            opened.reader.bulk(files.clone()),
            opened.reader.bulk_by_place(files.clone()),
        ] {
            assert_eq!(bulk.len(), files.len());
            let before = opened.count(Counter::Decodes);
            let size = |&node: &NodeId| opened.reader.fs().metadata(node).unwrap().size;
            assert_eq!(
                read_all(&opened, &image, &bulk),
                files.iter().map(size).sum::<u64>()
            );
            let decodes = opened.count(Counter::Decodes) - before;
            let blocks: u64 = (0..200_u64).map(|n| (n * 900 + 1).div_ceil(32 << 10)).sum();
            // The blocks of the files, of the large file, and of the tails. 200 KiB are in use, so
            // some blocks may be evicted in between.
            let blocks = blocks + 72 + 1;
            assert!(decodes <= blocks + 3, "{decodes} of {blocks}");
            total += decodes;
        }
        assert!(total > 0);
    }
}

#[test]
fn equal_files_are_decoded_once() {
    let mut builder = MemFsBuilder::new();
    let bytes = pattern(100 * KIB, 5);
    let block = builder.encode(&bytes);
    let twin = |n: usize| {
        let bytes = bytes.clone();
        (
            format!("twin{n}"),
            Piece::Fragment {
                block,
                skip: 0,
                bytes,
            },
        )
    };
    let mut files = Vec::new();
    for n in 0..10 {
        let (name, piece) = twin(n);
        files.push(builder.file(&name, [piece]));
        let own = Piece::Encoded {
            bytes: pattern(100 * KIB, 100 + n as u64),
            block_len: 100 * KIB,
        };
        files.push(builder.file(&format!("own{n}"), [own]));
    }
    let image = builder.build();
    let opened = open(&image, options(2));
    let bulk = opened.reader.bulk_by_place(files);
    assert_eq!(read_all(&opened, &image, &bulk), 20 * 100 * KIB as u64);
    assert_eq!(opened.count(Counter::Decodes), 11);
    assert_eq!(opened.count(Counter::RepeatedDecodes), 0);
}

#[test]
fn an_image_that_shares_blocks_is_decoded_once_too() {
    let mut builder = MemFsBuilder::new();
    builder.shares_blocks();
    let (first, shared) = (pattern(KIB, 1), pattern(100 * KIB, 5));
    let (head, block) = (builder.encode(&first), builder.encode(&shared));
    let whole = |block, bytes: &[u8]| Piece::Fragment {
        block,
        skip: 0,
        bytes: bytes.to_vec(),
    };
    let files = vec![
        builder.file("a", [whole(block, &shared)]),
        builder.file("b", [whole(head, &first), whole(block, &shared)]),
    ];
    let image = builder.build();
    let opened = open(&image, options(2));
    let bulk = opened.reader.bulk_by_place(files);
    assert_eq!(read_all(&opened, &image, &bulk), 201 * KIB as u64);
    assert_eq!(opened.count(Counter::Decodes), 2);
}

#[test]
fn nothing_is_guessed_for_readers_of_a_list() {
    let mut builder = MemFsBuilder::new();
    let mut listed = Vec::new();
    for n in 0..400_u64 {
        let node = builder.file(&format!("d/{n:03}"), [Piece::Stored(pattern(200 * KIB, n))]);
        if n % 20 == 0 {
            listed.push(node);
        }
    }
    let image = builder.build();
    let opened = open(&image, options(1));
    assert_eq!(opened.reader.walk(MemFsBuilder::ROOT).count(), 402);
    let wanted = listed.len() as u64 * 200 * KIB as u64;
    let bulk = opened.reader.bulk(listed);
    assert_eq!(read_all(&opened, &image, &bulk), wanted);
    // The pages at both ends of each file are read whole.
    let bytes = opened.count(Counter::SourceBytes);
    assert!(bytes <= wanted + 20 * 8192, "{bytes} of {wanted}");
}

#[test]
fn a_bad_place_spoils_only_the_file_it_is_in() {
    let mut builder = MemFsBuilder::new();
    builder.align(4096);
    let files: Vec<_> = (0..40)
        .map(|n| {
            let bytes = pattern(50 * KIB, n);
            let block_len = 50 * KIB;
            builder.file(&format!("{n:02}"), [Piece::Encoded { bytes, block_len }])
        })
        .collect();
    let image = builder.build();
    let place = |node: NodeId| -> Range<u64> {
        let opened = open(&image, options(1));
        match extents(&opened, node, 50 * KIB as u64).remove(0).place {
            forerun_vfs::Place::Encoded { block, .. } => block.stored(),
            _ => unreachable!(),
        }
    };
    let bad = place(files[17]);
    let source = FaultSource::bad_range(image.source.clone(), bad);
    let opened = open_on(&image, Arc::new(source), options(2));
    let bulk = opened.reader.bulk_by_place(files.clone());
    while let Some(taken) = bulk.take() {
        let range = 0..50 * KIB as u64;
        let extent = extents(&opened, taken.node, range.end).remove(0);
        let data = bulk.read(&taken, range.clone(), Some(&extent));
        assert_eq!(data.is_err(), taken.node == files[17], "{}", taken.position);
        if let Ok(data) = data {
            assert!(data[..] == image.fs.content(taken.node, range));
        }
    }
}

/// A source that counts the bytes that are read with [`Pattern::Once`].
struct Once {
    inner: Arc<dyn ReadAt>,
    once: Arc<AtomicU64>,
}

impl ReadAt for Once {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.inner.read_exact_at(offset, out)
    }

    fn read_ahead_at(&self, offset: u64, out: &mut [u8], pattern: Pattern) -> std::io::Result<()> {
        if pattern != Pattern::Once {
            return self.inner.read_exact_at(offset, out);
        }
        assert_eq!(offset % 4096, 0, "whole pages");
        assert!(
            out.len() < 512 * KIB || out.as_ptr().align_offset(4096) == 0,
            "memory for long reads begins on a page"
        );
        self.once.fetch_add(out.len() as u64, Ordering::Relaxed);
        self.inner.read_exact_at(offset, out)
    }
}

/// Checks both ways in which an extraction reads data: for a list, and for one file.
#[test]
fn what_a_list_reads_ahead_is_said_to_be_read_once() {
    let mut builder = MemFsBuilder::new();
    let files: Vec<_> = (0..100)
        .map(|n| builder.file(&format!("{n}"), [Piece::Stored(pattern(100_001, n))]))
        .collect();
    let image = builder.build();
    let open_once = || {
        let once = Arc::new(AtomicU64::new(0));
        let source = Once {
            inner: Arc::new(image.source.clone()),
            once: Arc::clone(&once),
        };
        (open_on(&image, Arc::new(source), options(1)), once)
    };
    let (opened, once) = open_once();
    let bulk = opened.reader.bulk_by_place(files.clone());
    read_all(&opened, &image, &bulk);
    let once = once.load(Ordering::Relaxed);
    assert!(once > 9_000_000, "{once} of 10 MB");
    let (opened, once) = open_once();
    for file in files {
        opened.read_all(&image, file, 64 * KIB);
    }
    assert_eq!(once.load(Ordering::Relaxed), 0);
}
