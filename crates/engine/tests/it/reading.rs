//! Reads of every kind of extent: the right bytes, with the fewest requests and decodes.

use forerun_engine::EngineOptions;
use forerun_io::{Counter, EventKind, MemorySource, Pattern, Purpose, ReadAt};
use forerun_testkit::{CountingSource, MemFsBuilder, Piece};
use forerun_vfs::{Error, NodeId};
use proptest::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{KIB, MIB, open, open_on, pattern};

fn options() -> EngineOptions {
    EngineOptions {
        threads: 2,
        ..EngineOptions::default()
    }
}

/// Returns pieces of each kind, with odd lengths, so that nothing is aligned.
fn mixed() -> Vec<Piece> {
    vec![
        Piece::Stored(pattern(300_001, 1)),
        Piece::Zero(70_003),
        Piece::Encoded {
            bytes: pattern(500_007, 2),
            block_len: 128 * KIB,
        },
        Piece::Inline(pattern(777, 3)),
        Piece::Zero(1),
        Piece::Stored(pattern(99_999, 4)),
        Piece::Encoded {
            bytes: pattern(12_345, 5),
            block_len: 4 * KIB,
        },
    ]
}

#[test]
fn a_long_stored_file_takes_large_requests() {
    let mut builder = MemFsBuilder::new();
    let node = builder.file("file", [Piece::Stored(pattern(64 * MIB, 7))]);
    let image = builder.build();
    for step in [128 * KIB, MIB] {
        let opened = open(&image, options());
        let size = opened.read_all(&image, node, step);
        let requests = opened.count(Counter::SourceRequests);
        assert!(
            requests <= size / MIB as u64 / 2 + 10,
            "{requests} requests in steps of {step}"
        );
        assert_eq!(opened.count(Counter::SourceBytes), size, "each byte once");
        assert_eq!(opened.count(Counter::ReadaheadWastedBytes), 0);
        assert_eq!(opened.count(Counter::ServedBytes), size);
    }
}

/// A source that records which ranges the engine reports as no longer needed, and counts the bytes
/// read with [`Pattern::Once`].
struct Forgetful {
    inner: MemorySource,
    done_with: Mutex<Vec<Range<u64>>>,
    once: AtomicU64,
}

impl ReadAt for Forgetful {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.inner.read_exact_at(offset, out)
    }

    fn read_ahead_at(&self, offset: u64, out: &mut [u8], pattern: Pattern) -> std::io::Result<()> {
        if pattern == Pattern::Once {
            self.once.fetch_add(out.len() as u64, Ordering::Relaxed);
        }
        self.inner.read_exact_at(offset, out)
    }

    fn done_with(&self, range: Range<u64>) {
        self.done_with.lock().unwrap().push(range);
    }
}

#[test]
fn what_is_kept_above_and_served_as_it_is_is_read_once_and_goes_below() {
    let mut builder = MemFsBuilder::new();
    let plain = builder.file("plain", [Piece::Stored(pattern(16 * MIB, 7))]);
    let encoded = builder.file(
        "encoded",
        [Piece::Encoded {
            bytes: pattern(16 * MIB, 8),
            block_len: 128 * KIB,
        }],
    );
    let image = builder.build();
    for (node, is_kept, expected) in [
        (plain, true, 8 * MIB as u64..16 * MIB as u64 + 1),
        (plain, false, 0..1),
        (encoded, true, 0..1),
    ] {
        let source = Arc::new(Forgetful {
            inner: image.source.clone(),
            done_with: Mutex::default(),
            once: AtomicU64::new(0),
        });
        let opened = open_on(&image, Arc::clone(&source) as Arc<dyn ReadAt>, options());
        if is_kept {
            opened.reader.set_kept_above();
        }
        opened.read_all(&image, node, MIB);
        let done_with = source.done_with.lock().unwrap();
        let bytes: u64 = done_with.iter().map(|range| range.end - range.start).sum();
        assert!(expected.contains(&bytes), "{bytes} bytes of {node}");
        let once = source.once.load(Ordering::Relaxed);
        assert!(expected.contains(&once), "{once} bytes of {node} once");
    }
}

#[test]
fn small_steps_are_merged_too() {
    let mut builder = MemFsBuilder::new();
    let node = builder.file("file", [Piece::Stored(pattern(16 * MIB, 7))]);
    let image = builder.build();
    let opened = open(&image, options());
    let size = opened.read_all(&image, node, 4 * KIB);
    assert!(
        opened.count(Counter::SourceRequests) <= 20,
        "{}",
        opened.count(Counter::SourceRequests)
    );
    assert_eq!(opened.count(Counter::SourceBytes), size);
}

#[test]
fn the_legacy_way_is_one_request_a_block_and_nothing_ahead() {
    let mut builder = MemFsBuilder::new();
    let node = builder
        .align(1024)
        .file("file", [Piece::Stored(pattern(MIB, 7))]);
    let image = builder.build();
    let source = CountingSource::new(image.source.clone());
    let legacy = EngineOptions {
        large_blocks: false,
        ..options()
    };
    let opened = open_on(&image, Arc::new(source.clone()), legacy);
    opened.read_all(&image, node, 128 * KIB);
    assert_eq!(opened.count(Counter::SourceRequests), 1024);
    assert_eq!(opened.count(Counter::ReadaheadRequests), 0);
    assert!(
        source
            .take_log()
            .iter()
            .all(|range| range.end - range.start == 1024 && range.start % 1024 == 0)
    );
}

#[test]
fn each_block_is_decoded_once() {
    let mut builder = MemFsBuilder::new();
    let node = builder.file(
        "file",
        [Piece::Encoded {
            bytes: pattern(20 * MIB, 1),
            block_len: 128 * KIB,
        }],
    );
    let image = builder.build();
    for (step, threads) in [(4 * KIB, 1), (100_000, 2), (MIB, 4)] {
        let opened = open(
            &image,
            EngineOptions {
                threads,
                ..options()
            },
        );
        let size = opened.read_all(&image, node, step);
        assert_eq!(opened.count(Counter::Decodes), 160, "steps of {step}");
        assert_eq!(opened.count(Counter::RepeatedDecodes), 0);
        assert_eq!(opened.count(Counter::DecodedBytes), size);
    }
}

#[test]
fn a_shared_fragment_block_is_decoded_once_for_all() {
    let mut builder = MemFsBuilder::new();
    let bytes = pattern(100 * KIB, 9);
    let block = builder.encode(&bytes);
    let nodes: Vec<_> = (0..100)
        .map(|n| {
            let part = bytes[n * KIB..(n + 1) * KIB].to_vec();
            let skip = u32::try_from(n * KIB).unwrap();
            builder.file(
                &format!("d/{n}"),
                [Piece::Fragment {
                    block,
                    skip,
                    bytes: part,
                }],
            )
        })
        .collect();
    let image = builder.build();
    let opened = open(&image, options());
    for node in nodes {
        opened.read_all(&image, node, 64 * KIB);
    }
    assert_eq!(
        (
            opened.count(Counter::Decodes),
            opened.count(Counter::SourceRequests)
        ),
        (1, 1)
    );
}

#[test]
fn blocks_side_by_side_take_one_request() {
    let mut builder = MemFsBuilder::new();
    let bytes = pattern(400 * KIB, 3);
    let node = builder.file(
        "file",
        [
            Piece::Encoded {
                bytes: bytes.clone(),
                block_len: 4 * KIB,
            },
            Piece::Zero(9000),
            Piece::Stored(pattern(5000, 4)),
        ],
    );
    let image = builder.build();
    let still = EngineOptions {
        readahead: 0,
        ..options()
    };
    let opened = open(&image, still);
    let mut expected = (0, 0);
    // Reads of two blocks each, then one of several blocks of which two are known, then one of a
    // single block.
    for (at, len, requests, decodes) in [
        (390 * KIB, 4 * KIB, 1, 2),
        (350 * KIB, 4 * KIB, 1, 2),
        (348 * KIB, 12 * KIB, 1, 1),
        (302 * KIB, 300, 1, 1),
        (203 * KIB, 90 * KIB, 1, 24),
        (198 * KIB, 4 * KIB, 1, 1),
    ] {
        let found = opened.reader.read(node, at as u64, len).unwrap();
        assert!(found[..] == bytes[at..at + len]);
        expected = (expected.0 + requests, expected.1 + decodes);
        let counted = [Counter::SourceRequests, Counter::Decodes];
        let [requests, decodes] = counted.map(|counter| opened.count(counter));
        assert_eq!((requests, decodes), expected, "{len} bytes at {at}");
    }
    assert_eq!(opened.count(Counter::RepeatedDecodes), 0);
    let mut out = vec![0; 6 * KIB];
    opened.reader.read_into(node, 2048, &mut out).unwrap();
    assert!(out[..] == bytes[2048..8 * KIB]);
    assert_eq!(opened.count(Counter::SourceRequests), expected.0 + 1);
}

#[test]
fn many_readers_of_one_file_cost_no_more_than_one() {
    let mut builder = MemFsBuilder::new();
    let node = builder.file(
        "file",
        [Piece::Encoded {
            bytes: pattern(8 * MIB, 1),
            block_len: 128 * KIB,
        }],
    );
    let image = builder.build();
    let opened = open(&image, options());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| opened.read_all(&image, node, 128 * KIB));
        }
    });
    assert_eq!(opened.count(Counter::Decodes), 64);
    assert_eq!(opened.count(Counter::RepeatedDecodes), 0);
}

#[test]
fn nothing_is_read_past_the_end_of_the_file() {
    let mut builder = MemFsBuilder::new();
    let node = builder.file("file", [Piece::Stored(pattern(3 * MIB + 1, 7))]);
    let last = builder.store(&pattern(8 * MIB, 8));
    let image = builder.build();
    let source = CountingSource::new(image.source.clone());
    let opened = open_on(&image, Arc::new(source.clone()), options());
    opened.read_all(&image, node, MIB);
    assert!(source.take_log().iter().all(|range| range.end <= last));
}

#[test]
fn holes_and_inline_bytes_cost_no_request() {
    let mut builder = MemFsBuilder::new();
    let node = builder.file(
        "file",
        [Piece::Zero(5 * MIB as u64), Piece::Inline(pattern(1000, 1))],
    );
    let image = builder.build();
    let opened = open(&image, options());
    opened.read_all(&image, node, MIB);
    assert_eq!(opened.count(Counter::SourceRequests), 0);
}

#[test]
fn seeking_tells_data_from_holes() {
    let mut builder = MemFsBuilder::new();
    let pieces = [
        Piece::Zero(100),
        Piece::Stored(vec![1; 50]),
        Piece::Zero(10),
        Piece::Inline(vec![2; 40]),
    ];
    let node = builder.file("file", pieces);
    let image = builder.build();
    let reader = open(&image, options()).reader;
    for (offset, data, hole) in [
        (0, Some(100), Some(0)),
        (99, Some(100), Some(99)),
        (120, Some(120), Some(150)),
        (155, Some(160), Some(155)),
        (199, Some(199), Some(200)),
        (200, None, None),
        (u64::MAX, None, None),
    ] {
        assert_eq!(
            reader.seek_data(node, offset).unwrap(),
            data,
            "data from {offset}"
        );
        assert_eq!(
            reader.seek_hole(node, offset).unwrap(),
            hole,
            "hole from {offset}"
        );
    }
}

#[test]
fn only_files_are_read() {
    let mut builder = MemFsBuilder::new();
    let link = builder.symlink("link", b"target");
    let image = builder.build();
    let reader = open(&image, options()).reader;
    assert!(matches!(
        reader.read(MemFsBuilder::ROOT, 0, 1),
        Err(Error::IsADirectory)
    ));
    assert!(matches!(reader.read(link, 0, 1), Err(Error::NotAFile)));
    assert!(matches!(
        reader.read(NodeId(99), 0, 1),
        Err(Error::StaleNode(_))
    ));
}

#[test]
fn a_bulk_stream_merges_requests_across_files() {
    let mut builder = MemFsBuilder::new();
    let nodes: Vec<_> = (0..2000u64)
        .map(|n| builder.file(&format!("d/{n:04}"), [Piece::Stored(pattern(10_000, n))]))
        .collect();
    let image = builder.build();
    let opened = open(&image, options());
    let mut shuffled = nodes.clone();
    shuffled.reverse();
    opened.reader.physical_order(&mut shuffled);
    assert_eq!(shuffled, nodes);

    let bulk = opened.reader.bulk(shuffled);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(taken) = bulk.take() {
                    opened.read_all(&image, taken.node, 64 * KIB);
                }
            });
        }
    });
    // 20 MB in files of 10 kB: at most 20 large requests instead of 2,000.
    let requests = opened.count(Counter::SourceRequests);
    assert!(requests <= 20, "{requests}");
    assert_eq!(opened.count(Counter::SourceBytes), 20_000_000);
}

#[test]
fn events_tell_what_the_counters_sum_up() {
    let mut builder = MemFsBuilder::new();
    let node = builder.file("file", mixed());
    let image = builder.build();
    let opened = open(&image, options());
    opened.read_all(&image, node, 64 * KIB);
    let events = opened.events.take();
    let reads = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::SourceRead { .. }));
    assert_eq!(
        reads.clone().count() as u64,
        opened.count(Counter::SourceRequests)
    );
    assert_eq!(
        reads.map(|event| event.len).sum::<u64>(),
        opened.count(Counter::SourceBytes)
    );
    let decodes = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Decode { ok: true }));
    assert_eq!(decodes.count() as u64, opened.count(Counter::Decodes));
    let ahead = EventKind::SourceRead {
        purpose: Purpose::Readahead,
        ok: true,
    };
    assert!(events.iter().any(|event| event.kind == ahead));
}

#[test]
fn memory_stays_in_its_budget() {
    let mut builder = MemFsBuilder::new();
    let nodes: Vec<_> = (0..40u64)
        .map(|n| builder.file(&format!("{n}"), [Piece::Stored(pattern(2 * MIB, n))]))
        .collect();
    let image = builder.build();
    // The budget is too small for even one large request.
    let opened = open(
        &image,
        EngineOptions {
            cache: MIB as u64,
            ..options()
        },
    );
    for node in nodes {
        opened.read_all(&image, node, 64 * KIB);
    }
    assert_eq!(opened.count(Counter::SourceBytes), 80 * MIB as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_read_gives_the_right_bytes(
        reads in prop::collection::vec((0u64..1_100_000, 0usize..400_000), 1..40),
        clamp: bool,
        large_blocks: bool,
        readahead in prop::sample::select(vec![0u64, 64 << 10, 8 << 20]),
        cache in prop::sample::select(vec![64u64 << 10, 1 << 20, 256 << 20]),
    ) {
        let mut builder = MemFsBuilder::new();
        builder.clamp_extents(clamp);
        let node = builder.file("file", mixed());
        let image = builder.build();
        let opened = open(&image, EngineOptions { large_blocks, readahead, cache, ..options() });
        let mut buffer = vec![0xAA; 400_000];
        for (offset, len) in reads {
            let expected = image.fs.content(node, offset..offset + len as u64);
            prop_assert_eq!(&opened.reader.read(node, offset, len).unwrap()[..], &expected[..]);
            let got = opened.reader.read_into(node, offset, &mut buffer[..len]).unwrap();
            prop_assert_eq!(&buffer[..got], &expected[..]);
        }
    }
}
