//! Archives with a separate SOCI table of contents: they read the same with and without the table,
//! and hostile tables are refused.
//!
//! The tables in `data/` come from SOCI itself: from a program of ten lines around
//! `ztoc.NewBuilder(...).BuildZtoc(layer, 65536)` and `ztoc.Marshal` of soci-snapshotter 0.16.1,
//! then compressed with `zstd -19`. `data/soci-layer.py` made the layers; the second is the same
//! archive as three gzip members.

use std::sync::Arc;

use forerun_codec::Codec;
use forerun_engine::EngineOptions;
use forerun_io::{Limits, MemorySource, ReadAt};
use forerun_tar::{Tar, fuzzing};
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::opened::reader_on;
use forerun_testkit::ztoc::{SociLayer, Ztoc, beside};
use forerun_testkit::{CountingSource, Keeps, TreeModel};
use forerun_vfs::{Error, FileSystem, Layered, NodeId, OpenWith, ProvenTable, Result};

use crate::common::{archive, everything, member, node, record, xattrs};

/// A layer, and its SOCI table.
struct Fixture {
    blob: &'static [u8],
    ztoc: Vec<u8>,
}

fn fixtures() -> [Fixture; 2] {
    let fixture = |blob: &'static [u8], packed: &[u8]| {
        let mut ztoc = vec![0; 1 << 20];
        let len = Codec::Zstd.decode_up_to(packed, &mut ztoc).unwrap();
        ztoc.truncate(len);
        Fixture { blob, ztoc }
    };
    [
        fixture(
            include_bytes!("data/soci-layer.tar.gz"),
            include_bytes!("data/soci-layer.ztoc.zst"),
        ),
        fixture(
            include_bytes!("data/soci-members.tar.gz"),
            include_bytes!("data/soci-members.ztoc.zst"),
        ),
    ]
}

fn open_source(
    source: Arc<dyn ReadAt>,
    table: Option<ProvenTable>,
    limits: &Limits,
) -> Result<Tar> {
    let mut with = OpenWith::new(source);
    with.archive.table = table;
    with.archive.is_layer = true;
    with.limits = limits.clone();
    Tar::open_with(&with)
}

fn open(blob: &[u8], ztoc: &[u8]) -> Result<Tar> {
    let source = Arc::new(MemorySource::new(blob));
    open_source(source, Some(beside(ztoc)), &Limits::default())
}

/// Reads all files through the engine.
fn model(fs: Arc<Tar>, source: Arc<dyn ReadAt>) -> Result<TreeModel> {
    let options = EngineOptions::default();
    let reader = reader_on(fs.clone(), source, options, Limits::default());
    TreeModel::of_reader(&*fs, |node, offset, out| {
        let data = reader.read(node, offset, out.len())?;
        out[..data.len()].copy_from_slice(&data);
        Ok(data.len())
    })
}

fn described(fs: &Tar) -> Vec<String> {
    let paths = [
        "bin/tool",
        "etc",
        "etc/passwd",
        "etc/hard",
        "etc/below",
        "etc/char",
        "etc/block",
        "var/log",
        "var/attributes",
        "var/twice",
    ];
    let describe = |path: &&str| {
        let node: NodeId = node(fs, path).unwrap();
        format!("{path}: {:?}", fs.describe(Some(node)).unwrap())
    };
    paths.iter().map(describe).collect()
}

#[test]
fn a_table_of_soci_shows_the_tree_of_the_archive() {
    for Fixture { blob, ztoc } in fixtures() {
        let source = Arc::new(MemorySource::new(blob));
        let without = open_source(source.clone(), None, &Limits::default()).unwrap();
        let with = Arc::new(open(blob, &ztoc).unwrap());
        check_filesystem(&*with, &Limits::default());
        let expected = model(Arc::new(without), source.clone()).unwrap();
        expected.assert_same(
            &model(with.clone(), source.clone()).unwrap(),
            &Keeps::EVERYTHING,
        );
        let without = open_source(source, None, &Limits::default()).unwrap();
        assert_eq!(described(&with), described(&without));
        assert_eq!(
            xattrs(&with, "var/attributes"),
            xattrs(&without, "var/attributes")
        );
        assert_eq!(xattrs(&with, "var/attributes").len(), 2);
        let links = |fs: &Tar| {
            let mut found = Vec::new();
            fs.links_below(&mut |_, path| found.push(path.to_vec()));
            found
        };
        assert_eq!(links(&with), [b"lib/of-a-lower-layer"]);
        assert_eq!(links(&without), links(&with));
    }
}

#[test]
fn nothing_is_read_before_a_file_is_and_then_only_its_span() {
    for Fixture { blob, ztoc } in fixtures() {
        let source = Arc::new(CountingSource::new(MemorySource::new(blob)));
        let fs = open_source(source.clone(), Some(beside(&ztoc)), &Limits::default());
        let fs = Arc::new(fs.unwrap());
        let passwd = node(&fs, "etc/passwd").unwrap();
        assert_eq!(source.take_log(), []);
        let options = EngineOptions::default();
        let reader = reader_on(fs, source.clone(), options, Limits::default());
        let read = reader.read(passwd, 0, 100).unwrap();
        assert_eq!(&*read, b"root:x:0:0::/root:/bin/sh\n");
        let read = source.take_log();
        let bytes: u64 = read.iter().map(|read| read.end - read.start).sum();
        assert!(bytes * 2 < blob.len() as u64, "{read:?}");
    }
}

/// Changes bytes at regular steps, and reads everything: each span is compared with its digest, so
/// no changed byte is served.
#[test]
fn no_altered_byte_of_a_span_is_served() {
    for Fixture { blob, ztoc } in fixtures() {
        // The gzip header of the first member belongs to no span.
        let header = blob.len() - blob.len().min(40_000);
        for at in (40..blob.len())
            .step_by(blob.len() / 23)
            .chain([blob.len() - 1, header])
        {
            let mut altered = blob.to_vec();
            altered[at] ^= 0x10;
            let source = Arc::new(MemorySource::new(&altered[..]));
            let error = model(Arc::new(open(&altered, &ztoc).unwrap()), source).err();
            let error = error
                .unwrap_or_else(|| panic!("byte {at} was served"))
                .to_string();
            assert!(error.contains("have the digest sha256:"), "{at}: {error}");
        }
    }
}

/// Removes the first checkpoint from a table. The oldest programs wrote such tables, but their
/// digest of the first span begins after the gzip header nevertheless.
fn without_the_first_checkpoint(ztoc: &[u8]) -> Vec<u8> {
    const CHECKPOINT: usize = 17 + (32 << 10);
    // The length of the list, the number of checkpoints, and the length of spans.
    let is_list = |at: &usize| {
        let number = |at: usize| {
            let bytes = ztoc[at..].first_chunk().copied();
            usize::try_from(bytes.map_or(0, u32::from_le_bytes)).unwrap()
        };
        let count = number(at + 4);
        count > 1 && number(*at) == 12 + count * CHECKPOINT && number(at + 8) == 65536
    };
    let at = (0..ztoc.len() - 16).find(is_list).unwrap();
    let first = at + 16;
    let mut old = ztoc.to_vec();
    let len = u32::from_le_bytes(*ztoc[at..].first_chunk().unwrap());
    let end = at + 4 + usize::try_from(len).unwrap();
    old.copy_within(first + CHECKPOINT..end, first);
    let less = len - u32::try_from(CHECKPOINT).unwrap();
    old[at..at + 4].copy_from_slice(&less.to_le_bytes());
    old
}

#[test]
fn a_table_of_the_oldest_form_has_its_first_span_behind_any_header_of_gzip() {
    let names = [false, true];
    for (Fixture { blob, ztoc }, has_name) in fixtures().into_iter().zip(names) {
        let is_named = blob[3] & 8 != 0;
        assert_eq!(is_named, has_name, "the file name in the header");
        let ztoc = without_the_first_checkpoint(&ztoc);
        let source = Arc::new(MemorySource::new(blob));
        let without = open_source(source.clone(), None, &Limits::default()).unwrap();
        let expected = model(Arc::new(without), source.clone()).unwrap();
        let found = model(Arc::new(open(blob, &ztoc).unwrap()), source).unwrap();
        expected.assert_same(&found, &Keeps::EVERYTHING);
        // The flags of the gzip header, which belongs to no span, and bytes after it.
        for at in [3, 20, 1000] {
            let mut altered = blob.to_vec();
            altered[at] ^= 0x10;
            let source = Arc::new(MemorySource::new(&altered[..]));
            let read = model(Arc::new(open(&altered, &ztoc).unwrap()), source);
            let error = read
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert!(error.contains("have the digest sha256:"), "{at}: {error}");
        }
    }
}

fn layer() -> SociLayer {
    layer_of(2048)
}

/// Returns a layer with spans of `span` bytes.
fn layer_of(span: usize) -> SociLayer {
    let attributes = record("SCHILY.xattr.user.a", b"1");
    SociLayer::new(
        &archive(&[
            member(b'5', b"d/", b"", b""),
            member(b'0', b"d/file", b"", &[7; 3000]),
            member(b'x', b"x", b"", &attributes),
            member(b'0', b"d/last", b"", b"last"),
        ]),
        span,
    )
}

#[test]
fn what_the_kit_makes_is_read_as_the_archive() {
    let mut members = everything();
    // The test kit does not support the sparse file, and the file with another time in its header.
    members.truncate(9);
    let plain = archive(&members);
    for span in [700, 2048, 1 << 20] {
        let made = SociLayer::new(&plain, span);
        let source = Arc::new(MemorySource::new(&made.blob[..]));
        let with = Arc::new(open(&made.blob, &made.ztoc.encode()).unwrap());
        let without = open_source(source.clone(), None, &Limits::default()).unwrap();
        let expected = TreeModel::of_image(&without, &*source).unwrap();
        let found = model(with, source).unwrap();
        expected.assert_same(&found, &Keeps::EVERYTHING);
    }
}

type Change = dyn Fn(&mut Ztoc);

/// Changes the table of a good layer, and returns the error.
fn altered(change: impl FnOnce(&mut Ztoc)) -> Error {
    let SociLayer { blob, mut ztoc } = layer();
    assert!(open(&blob, &ztoc.encode()).is_ok());
    change(&mut ztoc);
    open(&blob, &ztoc.encode()).err().unwrap()
}

#[test]
fn tables_that_lie_are_refused() {
    let checks: &[(&str, &Change)] = &[
        ("one has", &|ztoc| ztoc.compressed_archive_size += 1),
        ("decode to -1", &|ztoc| ztoc.uncompressed_archive_size = -1),
        ("-5 bytes", &|ztoc| ztoc.compressed_archive_size = -5),
        ("cannot be at", &|ztoc| {
            ztoc.uncompressed_archive_size = 4096
        }),
        ("digests of spans", &|ztoc| drop(ztoc.span_digests.pop())),
        ("digests of spans", &|ztoc| {
            ztoc.span_digests.push(String::new())
        }),
        ("not a SHA-256 digest", &|ztoc| {
            ztoc.span_digests[1] = "sha512:00".into()
        }),
        ("not the length they state", &|ztoc| {
            ztoc.checkpoints.push(0)
        }),
        ("not the length they state", &|ztoc| {
            ztoc.checkpoints.truncate(12)
        }),
        ("not the length they state", &|ztoc| {
            ztoc.checkpoints[3] = 0xff
        }),
        ("checkpoint 0", &|ztoc| ztoc.checkpoints[12 + 7] = 0xff),
        ("checkpoint 2", &|ztoc| {
            ztoc.checkpoints[12 + 32785 + 8 + 7] = 0x7f
        }),
        ("cannot be at", &|ztoc| {
            ztoc.metadata[1].uncompressed_size = 1 << 40
        }),
        ("cannot be at", &|ztoc| {
            ztoc.metadata[1].uncompressed_offset = i64::MAX
        }),
        ("cannot be at", &|ztoc| {
            ztoc.metadata[1].uncompressed_offset += 1
        }),
        ("cannot be at", &|ztoc| {
            ztoc.metadata[2].uncompressed_offset = 512
        }),
        ("out of range", &|ztoc| {
            ztoc.metadata[1].uncompressed_offset = -512
        }),
        ("out of range", &|ztoc| {
            ztoc.metadata[1].uncompressed_size = -1
        }),
        ("out of range", &|ztoc| {
            ztoc.metadata[1].mod_time = "yesterday".into()
        }),
        ("unknown type", &|ztoc| {
            ztoc.metadata[1].kind = "door".into()
        }),
        ("path cannot be used", &|ztoc| {
            ztoc.metadata[1].name = b"../up".to_vec()
        }),
        ("path cannot be used", &|ztoc| {
            ztoc.metadata[1].name = b"a\0b".to_vec()
        }),
        ("extended header", &|ztoc| {
            ztoc.metadata[2].xattrs = vec![(b"mtime".to_vec(), b"x".to_vec())];
        }),
    ];
    for (expected, change) in checks {
        let error = altered(change);
        assert!(matches!(error, Error::Corrupt(_)), "{expected}: {error}");
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
}

#[test]
fn tables_of_other_archives_are_refused() {
    let fixture = &fixtures()[0];
    let error = open(fixture.blob, &layer().ztoc.encode()).err().unwrap();
    assert!(error.to_string().contains("is of an archive of"), "{error}");
    let mut table = beside(&fixture.ztoc);
    table.digest[0] ^= 1;
    let source = Arc::new(MemorySource::new(fixture.blob));
    let error = open_source(source, Some(table), &Limits::default())
        .err()
        .unwrap();
    assert!(
        error.to_string().contains("has the digest sha256:"),
        "{error}"
    );
}

#[test]
fn tables_of_other_forms_are_not_supported() {
    let checks: &[&Change] = &[
        &|ztoc| ztoc.version = "1.0".into(),
        &|ztoc| ztoc.version.clear(),
        &|ztoc| ztoc.compression_algorithm = 2,
        &|ztoc| {
            ztoc.metadata[1].xattrs = vec![(b"GNU.sparse.major".to_vec(), b"1".to_vec())];
        },
    ];
    for change in checks {
        let error = altered(change);
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
    }
}

#[test]
fn windows_are_trusted_as_the_table_is() {
    let fixture = &fixtures()[0];
    let mut ztoc = fixture.ztoc.clone();
    // The windows contain text of the archive. The test trusts the changed table, so its digest
    // matches.
    let known = b"member";
    let places: Vec<usize> = (0..ztoc.len() - known.len())
        .filter(|at| ztoc[*at..].starts_with(known))
        .collect();
    assert!(places.len() > 100, "{}", places.len());
    for at in places {
        ztoc[at] = b'M';
    }
    let source = Arc::new(MemorySource::new(fixture.blob));
    let fs = open_source(source.clone(), Some(beside(&ztoc)), &Limits::default()).unwrap();
    // The digests cover the stored bytes. The creator of the table decides what they decode to, as
    // it decides names.
    assert!(model(Arc::new(fs), source).is_ok());
}

#[test]
fn a_table_of_many_entries_takes_bounded_memory() {
    let SociLayer { blob, ztoc } = layer();
    let mut limits = Limits::default();
    limits.walk_bytes = 10_000;
    let source = Arc::new(MemorySource::new(&blob[..]));
    let table = Some(beside(&ztoc.encode()));
    let error = open_source(source, table, &limits).err().unwrap();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
}

/// Changes and truncates tables like the fuzz target does: none may panic.
#[test]
fn mutated_tables_are_errors_at_most() {
    let SociLayer { blob, mut ztoc } = layer_of(1 << 20);
    // The oldest form lacks the window of the first checkpoint, which is empty.
    ztoc.checkpoints.truncate(12);
    let table = ztoc.encode();
    let input = |table: &[u8]| {
        let len = u32::try_from(table.len()).unwrap().to_le_bytes();
        fuzzing::soci(&[&len[..], table, &blob].concat())
    };
    assert!(input(&table).is_empty());
    for at in 0..table.len() {
        for byte in [0, 1, 0x7f, 0xff, table[at] ^ 4] {
            let mut altered = table.clone();
            altered[at] = byte;
            let _errors = input(&altered);
        }
        let _errors = input(&table[..at]);
    }
}
