//! Concurrent long reads of one file, as a kernel makes them: each thread decodes what it reads.

use std::ops::ControlFlow;
use std::sync::Mutex;

use forerun_engine::EngineOptions;
use forerun_io::{Counter, ReadAt};
use forerun_testkit::{MemFsBuilder, MemImage, Piece};
use forerun_vfs::{Error, FileSystem, NodeId, Place};

use crate::common::{KIB, MIB, Opened, open, pattern};

/// Does not divide the length of the pieces, so some blocks span two pieces.
const BLOCK: usize = 100 * KIB;
const LEN: usize = 16 * MIB + 12_345;

fn builder() -> (MemFsBuilder, NodeId) {
    let mut builder = MemFsBuilder::new();
    let bytes = pattern(LEN, 8);
    let encoded = Piece::Encoded {
        bytes,
        block_len: BLOCK,
    };
    let node = builder.file("file", [encoded]);
    (builder, node)
}

fn image() -> (MemImage, NodeId) {
    let (builder, node) = builder();
    (builder.build(), node)
}

fn options(threads: usize) -> EngineOptions {
    EngineOptions {
        threads,
        ..EngineOptions::default()
    }
}

/// Reads the file with four threads. Each takes the next piece that no thread has begun.
fn read_side_by_side(opened: &Opened, image: &MemImage, node: NodeId) {
    let next = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let at = {
                        let mut next = next.lock().unwrap();
                        let at: usize = *next;
                        *next = at + MIB;
                        at
                    };
                    if at >= LEN {
                        break;
                    }
                    let data = opened.reader.read(node, at as u64, MIB).unwrap();
                    let end = (at + MIB).min(LEN) as u64;
                    assert!(data[..] == image.fs.content(node, at as u64..end), "{at}");
                }
            });
        }
    });
}

#[test]
fn each_block_is_decoded_once_by_its_reader() {
    let (image, node) = image();
    let blocks = LEN.div_ceil(BLOCK) as u64;
    for round in 0..20 {
        let opened = open(&image, options(2));
        opened.reader.set_kept_above();
        // A thread that overtakes the one before it reads its piece itself. If three do, and finish
        // before the slow thread has planned its readahead, the first of their pieces may be
        // evicted and is read again.
        let overtaking = match round % 2 {
            0 => {
                read_side_by_side(&opened, &image, node);
                MIB as u64
            }
            _ => {
                assert_eq!(opened.read_all(&image, node, MIB), LEN as u64);
                0
            }
        };
        assert_eq!(opened.count(Counter::Decodes), blocks);
        assert_eq!(opened.count(Counter::RepeatedDecodes), 0);
        let read = opened.count(Counter::SourceBytes);
        assert!(
            read <= image.source.len() + overtaking,
            "{read} bytes in round {round}"
        );
        // Each block is found once among the bytes read ahead. Only blocks at the start, and blocks
        // in two pieces, are found a second time, decoded by another thread.
        let others = 2 * MIB / BLOCK + LEN / MIB + 10;
        let hits = opened.count(Counter::CacheHits);
        assert!(hits <= blocks + others as u64, "{hits} of {blocks} blocks");
    }
}

#[test]
fn what_was_not_planned_of_a_long_read_is_one_request() {
    let (image, node) = image();
    for at in [0, 5 * MIB as u64] {
        // Nothing is read ahead.
        let opened = open(
            &image,
            EngineOptions {
                readahead: 0,
                ..options(2)
            },
        );
        opened.reader.set_kept_above();
        let before = opened.count(Counter::SourceRequests);
        opened.reader.read(node, at, MIB).unwrap();
        let requests = opened.count(Counter::SourceRequests) - before;
        assert_eq!(requests, 1, "at {at}");
    }
}

#[test]
fn each_block_is_decoded_once_for_one_reader_and_for_small_pieces() {
    let (image, node) = image();
    let blocks = LEN.div_ceil(BLOCK) as u64;
    for (is_kept, threads, step) in [(false, 2, MIB), (true, 2, 128 * KIB), (true, 5, MIB)] {
        let opened = open(&image, options(threads));
        if is_kept {
            opened.reader.set_kept_above();
        }
        opened.read_all(&image, node, step);
        assert_eq!(opened.count(Counter::Decodes), blocks);
        assert_eq!(opened.count(Counter::RepeatedDecodes), 0);
    }
}

#[test]
fn a_block_that_does_not_decode_fails_the_piece_that_it_is_in() {
    let (image, node) = image();
    // In the middle of the third piece.
    let at = (5 * MIB / 2) as u64;
    let mut offset = None;
    let found = image
        .fs
        .map(node, 0..LEN as u64, &mut |extent| match extent.place {
            Place::Encoded { block, .. } if extent.logical.contains(&at) => {
                assert!(extent.is_whole_block());
                offset = Some(block.offset);
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        });
    found.unwrap();
    let offset = offset.unwrap();
    let (mut builder, node) = builder();
    builder.raw_image(offset..offset + 40, |bytes| bytes.fill(0xFF));
    let image = builder.build();
    let opened = open(&image, options(2));
    opened.reader.set_kept_above();
    for _ in 0..2 {
        for piece in 0..LEN / MIB {
            let start = (piece * MIB) as u64;
            let read = opened.reader.read(node, start, MIB);
            if piece == 2 {
                let error = read.unwrap_err();
                assert!(matches!(error, Error::Corrupt(_)), "{error}");
                assert!(
                    error.to_string().contains(&format!("{offset:#x}")),
                    "{error}"
                );
            } else {
                let expected = image.fs.content(node, start..start + MIB as u64);
                assert!(read.unwrap()[..] == expected);
            }
        }
    }
}
