//! Reads and decodes that fail, are short or are slow: the error names the right range, and no
//! failure is cached.

use std::sync::Arc;

use forerun_engine::EngineOptions;
use forerun_io::Counter;
use forerun_testkit::{FaultSource, MemFsBuilder, MemImage, Piece};
use forerun_vfs::{BlobId, DecodedLen, Error, Extent, NodeId, Place};

use crate::common::{KIB, MIB, open, open_on, pattern};

fn options() -> EngineOptions {
    EngineOptions {
        threads: 2,
        ..EngineOptions::default()
    }
}

fn image() -> (MemImage, Vec<NodeId>) {
    let mut builder = MemFsBuilder::new();
    let nodes = vec![
        builder.file("stored", [Piece::Stored(pattern(3 * MIB, 1))]),
        builder.file(
            "encoded",
            [Piece::Encoded {
                bytes: pattern(2 * MIB, 2),
                block_len: 128 * KIB,
            }],
        ),
    ];
    (builder.build(), nodes)
}

#[test]
fn a_fault_at_any_request_is_an_error_or_nothing() {
    for large_blocks in [true, false] {
        for short in [true, false] {
            // More requests than either way of reading makes of the first 64 KiB and the rest.
            for n in 0..80 {
                let (image, nodes) = image();
                let source = image.source.clone();
                let fault = if short {
                    FaultSource::short_nth(source, n)
                } else {
                    FaultSource::fail_nth(source, n)
                };
                let opened = open_on(
                    &image,
                    Arc::new(fault),
                    EngineOptions {
                        large_blocks,
                        ..options()
                    },
                );
                for &node in &nodes {
                    for at in (0..512 * KIB as u64).step_by(64 * KIB) {
                        match opened.reader.read(node, at, 64 * KIB) {
                            Ok(data) => assert!(
                                data[..] == image.fs.content(node, at..at + data.len() as u64)
                            ),
                            Err(error) => assert!(matches!(error, Error::Io { .. }), "{error}"),
                        }
                        // The fault is over, and no failure may be cached.
                        let again = opened.reader.read(node, at, 64 * KIB).unwrap();
                        assert!(again[..] == image.fs.content(node, at..at + 64 * KIB as u64));
                    }
                }
            }
        }
    }
}

#[test]
fn a_bad_sector_spoils_nothing_but_itself() {
    let (image, nodes) = image();
    // In the middle of the stored file, which starts at offset 512.
    let bad = 512 + MIB as u64 + 100..512 + MIB as u64 + 101;
    let fault = FaultSource::bad_range(image.source.clone(), bad.clone());
    let opened = open_on(&image, Arc::new(fault), options());
    let (mut failed, size) = (Vec::new(), 3 * MIB as u64);
    for at in (0..size).step_by(4 * KIB) {
        match opened.reader.read(nodes[0], at, 4 * KIB) {
            Ok(data) => assert!(data[..] == image.fs.content(nodes[0], at..at + 4 * KIB as u64)),
            Err(Error::Io { offset, len, .. }) => {
                assert!(
                    (offset..offset + len).contains(&bad.start),
                    "{offset} + {len} is not to blame"
                );
                assert!(len <= 4096);
                failed.push(at);
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(
        failed,
        [MIB as u64],
        "exactly the read that needs the sector"
    );
    // A large read over the bad sector fails and names it; a read beside it works.
    let Err(Error::Io { offset, len, .. }) = opened.reader.read(nodes[0], 512 * KIB as u64, MIB)
    else {
        panic!("the sector is bad");
    };
    assert!((offset..offset + len).contains(&bad.start) && len <= 4096);
    assert!(opened.reader.read(nodes[0], 2 * MIB as u64, MIB).is_ok());
}

#[test]
fn a_slow_request_holds_up_only_readers_of_its_bytes() {
    let mut builder = MemFsBuilder::new();
    let slow = builder.file("slow", [Piece::Stored(pattern(4 * KIB, 1))]);
    let other = builder.file("other", [Piece::Stored(pattern(4 * KIB, 2))]);
    let image = builder.build();
    let (source, gate) = FaultSource::slow_nth(image.source.clone(), 0);
    let opened = open_on(&image, Arc::new(source), options());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| opened.read_all(&image, slow, 4 * KIB));
        gate.wait_until_reached();
        opened.read_all(&image, other, 4 * KIB);
        assert!(!waiting.is_finished());
        gate.open();
    });
}

#[test]
fn a_slow_request_at_any_place_ends_in_the_right_bytes() {
    for large_blocks in [true, false] {
        for n in 0..40 {
            let (image, nodes) = image();
            let (source, gate) = FaultSource::slow_nth(image.source.clone(), n);
            let options = EngineOptions {
                large_blocks,
                ..options()
            };
            let opened = open_on(&image, Arc::new(source), options);
            std::thread::scope(|scope| {
                let reading = scope.spawn(|| {
                    for &node in &nodes {
                        opened.read_all(&image, node, 256 * KIB);
                    }
                });
                // With large blocks there may be fewer requests than the gate expects.
                while !gate.reached() && !reading.is_finished() {
                    std::thread::yield_now();
                }
                gate.open();
            });
            assert_eq!(opened.count(Counter::SourceErrors), 0);
        }
    }
}

#[test]
fn a_block_that_does_not_decode_fails_each_time() {
    let mut builder = MemFsBuilder::new();
    let node = builder.file(
        "f",
        [Piece::Encoded {
            bytes: pattern(512 * KIB, 2),
            block_len: 128 * KIB,
        }],
    );
    let mut places = Vec::new();
    let image = {
        let probe = builder.build();
        use forerun_vfs::FileSystem;
        probe
            .fs
            .map(node, 0..u64::MAX, &mut |extent| {
                places.push(extent.place);
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
        let Place::Encoded { block, .. } = &places[1] else {
            panic!("encoded")
        };
        let mut builder = MemFsBuilder::new();
        builder.file(
            "f",
            [Piece::Encoded {
                bytes: pattern(512 * KIB, 2),
                block_len: 128 * KIB,
            }],
        );
        builder.raw_image(block.offset..block.offset + 40, |bytes| bytes.fill(0xFF));
        builder.build()
    };
    let opened = open(&image, options());
    for _ in 0..3 {
        let error = opened.reader.read(node, 128 * KIB as u64, 10).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
    }
    assert!(opened.count(Counter::DecodeErrors) >= 3, "never kept");
    for block in [0, 2, 3] {
        let at = block * 128 * KIB as u64;
        assert!(
            opened.reader.read(node, at, 128 * KIB).unwrap()[..]
                == image.fs.content(node, at..at + 128 * KIB as u64)
        );
    }
}

#[test]
fn extents_that_lie_are_errors() {
    let blob = BlobId::IMAGE;
    let stored = |logical, offset| Extent {
        logical,
        place: Place::Stored { blob, offset },
    };
    let inline = |logical, len: usize| Extent {
        logical,
        place: Place::Inline(vec![1; len].into()),
    };
    let cases: Vec<(&str, Vec<Extent>)> = vec![
        ("nothing", vec![]),
        ("too short", vec![stored(0..50, 0)]),
        ("gap", vec![stored(0..50, 0), stored(60..100, 0)]),
        ("starts late", vec![stored(10..100, 0)]),
        ("past the image", vec![stored(0..100, 1 << 40)]),
        (
            "at the end of all numbers",
            vec![stored(0..100, u64::MAX - 10)],
        ),
        ("short inline", vec![inline(0..100, 99)]),
        (
            "foreign blob",
            vec![Extent {
                logical: 0..100,
                place: Place::Stored {
                    blob: BlobId(7),
                    offset: 0,
                },
            }],
        ),
    ];
    for (what, extents) in cases {
        let mut builder = MemFsBuilder::new();
        let node = builder.raw_file("f", 100, extents);
        let opened = open(&builder.build(), options());
        assert!(opened.reader.read(node, 0, 100).is_err(), "{what}");
        assert!(
            opened.reader.read_into(node, 0, &mut [0; 100]).is_err(),
            "{what}"
        );
        assert!(opened.reader.read(node, 0, usize::MAX).is_err(), "{what}");
    }
}

#[test]
fn an_error_names_the_bytes_that_no_extent_holds() {
    let stored = |logical| Extent {
        logical,
        place: Place::Stored {
            blob: BlobId::IMAGE,
            offset: 0,
        },
    };
    for (extents, expected) in [
        (
            vec![stored(0..50)],
            "no extent covers bytes 50..100 of the file",
        ),
        (
            vec![stored(0..50), stored(60..100)],
            "no extent covers bytes 50..60 of the file",
        ),
        (
            vec![stored(0..50), stored(20..50)],
            "the next byte of the file is 50, but its extent covers 20..50",
        ),
        (
            vec![stored(0..50), stored(50..50)],
            "the next byte of the file is 50, but its extent covers 50..50",
        ),
    ] {
        let mut builder = MemFsBuilder::new();
        let node = builder.raw_file("f", 100, extents);
        let opened = open(&builder.build(), options());
        let error = opened.reader.read(node, 0, 100).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_block_that_claims_too_much_is_refused_before_memory_is_taken() {
    let mut builder = MemFsBuilder::new();
    let mut block = builder.encode(b"small");
    block.decoded_len = DecodedLen::Exact(u32::MAX);
    let place = Place::Encoded { block, skip: 0 };
    let node = builder.raw_file(
        "f",
        u64::from(u32::MAX),
        vec![Extent {
            logical: 0..u64::from(u32::MAX),
            place,
        }],
    );
    let opened = open(&builder.build(), options());
    assert!(matches!(
        opened.reader.read(node, 0, 10),
        Err(Error::Limit { .. })
    ));
}
