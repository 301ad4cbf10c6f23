//! What `check` says of drivers that answer nonsense: extents and names that cannot be.
#![allow(clippy::unwrap_used)]

mod common;

use common::reader;
use forerun_export::{CheckOptions, NoProgress, check};
use forerun_testkit::{MemFsBuilder, Piece};
use forerun_vfs::{BlobId, Extent, Place};

fn findings(builder: MemFsBuilder, quick: bool) -> Vec<(&'static str, String)> {
    let image = builder.build();
    let mut found = Vec::new();
    let report = &mut |finding: forerun_export::Finding| {
        found.push((finding.error.kind(), finding.error.to_string()));
    };
    check(&reader(&image), CheckOptions { quick }, &NoProgress, report);
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
        (
            vec![stored(0..50), stored(60..100)],
            "the extents jump from 50 to 60",
        ),
        (
            vec![stored(0..50)],
            "the extents end at 50 of the file's 100 bytes",
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
