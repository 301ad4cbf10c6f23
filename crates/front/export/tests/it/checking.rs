//! Findings of `check` for drivers that return invalid extents and names.

use std::sync::Arc;

use forerun_engine::Reader;
use forerun_export::{CheckOptions, NoProgress, check};
use forerun_testkit::{MemFsBuilder, Piece};
use forerun_vfs::{BlobId, Extent, Limits, Place};

use crate::common::{reader, reader_on};

fn findings(builder: MemFsBuilder, quick: bool) -> Vec<(&'static str, String)> {
    findings_of(&reader(&builder.build()), quick)
}

fn findings_of(reader: &Reader, quick: bool) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let report = &mut |finding: forerun_export::Finding| {
        found.push((finding.error.kind(), finding.error.to_string()));
    };
    check(reader, CheckOptions { quick }, &NoProgress, report);
    found
}

#[test]
fn extents_and_names_that_cannot_be_are_damage() {
    let stored = |logical| Extent {
        logical,
        place: Place::Stored {
            blob: BlobId::IMAGE,
            offset: 0,
        },
    };
    for (extents, expected) in [
        (vec![stored(0..50), stored(60..100)], "skip bytes 50 to 60"),
        (
            vec![stored(0..50)],
            "the extents end at 50 of the file's 100 bytes",
        ),
        (
            vec![stored(0..50), stored(50..50), stored(50..100)],
            "an extent at 50 of the file is empty",
        ),
    ] {
        let mut builder = MemFsBuilder::new();
        builder.raw_file("f", 100, extents);
        let found = findings(builder, true);
        assert!(
            matches!(&found[..], [("corrupt", text)] if text.contains(expected)),
            "{found:?}"
        );
    }
    for quick in [true, false] {
        let mut builder = MemFsBuilder::new();
        let file = builder.file("fine", [Piece::Stored(vec![1; 5000])]);
        assert!(findings(builder.clone(), quick).is_empty());
        builder.raw_entry(MemFsBuilder::ROOT, b"a\0b", file);
        let found = findings(builder, quick);
        assert!(
            matches!(&found[..], [("corrupt", text)] if text.contains("NUL")),
            "{found:?}"
        );
    }
}

#[test]
fn a_file_is_read_in_the_pieces_that_an_extraction_reads() {
    const MIB: u64 = 1 << 20;
    let mut builder = MemFsBuilder::new();
    let data = Piece::Stored(vec![1; 3 << 20]);
    let file = builder.file("f", [Piece::Zero(4096), data]);
    // Holes are not read, so the second read maps from here; return an extra extent that begins too
    // early.
    builder.on_map(move |node, range| {
        if node == file && range.start == 4096 + MIB {
            vec![range.start - 1..range.start, range]
        } else {
            vec![range]
        }
    });
    let image = builder.build();
    let reader = reader_on(
        image.driver(),
        Arc::new(image.source.clone()),
        Limits::default(),
    );
    let found = findings_of(&reader, false);
    assert!(
        matches!(&found[..], [("corrupt", text)] if text.contains("the next byte of the file is 1052672")),
        "{found:?}"
    );
}

#[test]
fn bytes_beyond_the_limit_are_one_finding_and_are_not_read() {
    let mut builder = MemFsBuilder::new();
    for n in 0..4 {
        builder.file(&format!("f{n}"), [Piece::Stored(vec![n; 100_000])]);
    }
    let mut limits = Limits::default();
    limits.total_bytes = 150_000;
    let image = builder.build();
    let reader = reader_on(image.driver(), Arc::new(image.source.clone()), limits);
    let mut found = Vec::new();
    let options = CheckOptions::default();
    let summary = check(&reader, options, &NoProgress, &mut |finding| {
        found.push((finding.path, finding.error.to_string()));
    });
    assert_eq!((summary.bytes, summary.files), (200_000, 4));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].1.contains("bytes of all files"), "{found:?}");
}

#[test]
fn files_that_share_a_damaged_block_are_counted_as_one_place() {
    let mut builder = MemFsBuilder::new();
    builder.file("whole", [Piece::Stored(vec![1; 5000])]);
    let shared = || Extent {
        logical: 0..100,
        place: Place::Stored {
            blob: BlobId::IMAGE,
            offset: 1000,
        },
    };
    builder.raw_file("one", 100, vec![shared()]);
    builder.raw_file("other", 100, vec![shared()]);
    let image = builder.build();
    let fault = forerun_testkit::FaultSource::bad_range(image.source.clone(), 1000..1100);
    let reader = reader_on(image.driver(), Arc::new(fault), Limits::default());
    let summary = check(&reader, CheckOptions::default(), &NoProgress, &mut |_| ());
    // The large file fails at its own first byte, which is a separate place.
    assert_eq!((summary.errors, summary.places), (3, 2));
}
