//! Hostile tables: wrong, changed, or with false offsets.

use std::sync::Arc;

use forerun_io::{Limits, MemorySource};
use forerun_tar::Tar;
use forerun_testkit::indexed::{
    IndexedArchive, IndexedOptions, estargz, estargz_of, fixture, zstd_chunked, zstd_chunked_of,
};
use forerun_testkit::mutate;
use forerun_vfs::{OpenWith, ProvenTable, TablePlace};
use serde_json::{Value, json};

use super::{model, open, plain};
use crate::common::{archive, member};

/// Changes the table of an archive, and returns the error of opening it.
fn altered(form: &IndexedArchive, change: impl FnOnce(&mut Value)) -> String {
    let mut json: Value = serde_json::from_str(&form.json).unwrap();
    change(&mut json);
    let json = json.to_string();
    let data = form.blob[..form.data_len].to_vec();
    let made = match form.table.place {
        TablePlace::Footer => estargz_of(data, &json),
        TablePlace::At { .. } => zstd_chunked_of(data, &json),
        TablePlace::Beside(_) => panic!("it is in the archive"),
    };
    match open(&made.blob, made.table) {
        Ok(fs) => model(Arc::new(fs), Arc::new(MemorySource::new(&made.blob[..])))
            .map_or_else(|error| error.to_string(), |_| String::new()),
        Err(error) => error.to_string(),
    }
}

/// Returns the last entry with this name.
fn entry<'v>(json: &'v mut Value, name: &str) -> &'v mut Value {
    let entries = json["entries"].as_array_mut().unwrap();
    entries
        .iter_mut()
        .rfind(|entry| entry["name"] == name)
        .unwrap()
}

type Change = fn(&mut Value);

/// Changes to a table, and parts of the expected errors.
const LIES: &[(Change, &str)] = &[
    (|json| json["version"] = json!(2), "version 2"),
    (|json| json["entries"] = json!({}), "invalid type: map"),
    (|json| *json = json!([]), "invalid type: sequence"),
    (
        |json| *json = json!({"version": 1}),
        "missing field `entries`",
    ),
    (
        |json| entry(json, "./etc/link")["type"] = json!("door"),
        "unknown type \"door\"",
    ),
    (
        |json| entry(json, "./etc/link")["name"] = json!("etc/../x"),
        "parent directory",
    ),
    (
        |json| entry(json, "./etc/link")["name"] = json!("/../x"),
        "parent directory",
    ),
    (
        |json| entry(json, "./etc/link")["name"] = json!("a\u{0}b"),
        "its path cannot be used",
    ),
    (
        |json| entry(json, "./etc/link")["uid"] = json!(1_u64 << 40),
        "uid is out of range",
    ),
    (
        |json| entry(json, "./etc/link")["uid"] = json!(-1),
        "invalid value: integer `-1`",
    ),
    (
        |json| entry(json, "./etc/link")["modtime"] = json!("noon"),
        "modtime is out of range",
    ),
    (
        |json| entry(json, "./etc/passwd")["xattrs"] = json!({"a": "*"}),
        "xattrs",
    ),
    (
        |json| entry(json, "./etc/passwd")["size"] = json!(6),
        "bytes",
    ),
    (
        |json| entry(json, "./etc/passwd")["size"] = json!(1_u64 << 62),
        "the",
    ),
    (
        |json| entry(json, "./etc/passwd")["offset"] = json!(1_u64 << 60),
        "at 0x1000000000000000",
    ),
    (
        |json| entry(json, "./etc/passwd")["offset"] = json!(u64::MAX),
        "0xffffffffffffffff",
    ),
    (
        |json| {
            let entry = entry(json, "./etc/passwd");
            entry["chunkDigest"] = json!("md5:00");
        },
        "\"md5:00\" is not a SHA-256 digest",
    ),
    (
        |json| {
            let entry = entry(json, "./etc/passwd");
            (entry["chunkDigest"], entry["digest"]) = (json!(""), json!(""));
        },
        "it has no digest",
    ),
    (
        |json| entry(json, "./bin/large")["name"] = json!("other"),
        "no earlier file has this chunk",
    ),
    (
        |json| entry(json, "./bin/large")["chunkOffset"] = json!(7),
        "begins at byte 7 of the file, not at 196608",
    ),
    (
        |json| entry(json, "./bin/large")["chunkSize"] = json!(9999),
        "its chunks end at byte 206607",
    ),
];

#[test]
fn tables_that_lie_are_refused_with_the_entry() {
    let plain = plain();
    let options = IndexedOptions::default();
    for form in [estargz(&plain, &options), zstd_chunked(&plain, &options)] {
        assert_eq!(altered(&form, |_| ()), "");
        for (number, (change, expected)) in LIES.iter().enumerate() {
            // In a form without the length of the last chunk, the file determines it.
            let error = altered(&form, change);
            assert!(error.contains(expected), "{number}: {error} for {expected}");
            assert!(error.contains("0x"), "{number}: {error}");
        }
    }
}

#[test]
fn pieces_that_overlap_or_lie_elsewhere_are_refused() {
    let plain = plain();
    let options = IndexedOptions::default();
    let (gzip, zstd) = (estargz(&plain, &options), zstd_chunked(&plain, &options));
    let place = |json: &mut Value, name: &str| entry(json, name)["offset"].as_u64().unwrap();
    // Two files at one location.
    for form in [&gzip, &zstd] {
        let error = altered(form, |json| {
            let other = place(json, "./etc/twice");
            entry(json, "./etc/passwd")["offset"] = json!(other);
        });
        assert!(error.contains("overlap"), "{error}");
    }
    let error = altered(&zstd, |json| {
        entry(json, "./etc/passwd")["endOffset"] = json!(1_u64 << 40)
    });
    assert!(error.contains("overlap"), "{error}");
    let error = altered(&zstd, |json| {
        entry(json, "./etc/twice")["endOffset"] = json!(1_u64 << 40)
    });
    assert!(error.contains("behind the data"), "{error}");
    let error = altered(&zstd, |json| {
        entry(json, "./etc/passwd")["endOffset"] = json!(1)
    });
    assert!(error.contains("behind the data"), "{error}");
    let error = altered(&zstd, |json| {
        entry(json, "./etc/passwd")["endOffset"] = json!(0)
    });
    assert_eq!(error, "", "the next piece ends it");
    let error = altered(&zstd, |json| {
        entry(json, "./etc/passwd")["innerOffset"] = json!(1)
    });
    assert!(error.contains("damaged"), "{error}");
    let error = altered(&gzip, |json| {
        entry(json, "./etc/twice")["offset"] = json!(1_u64 << 40)
    });
    assert!(error.contains("behind the data"), "{error}");
    // False zeros are accepted, because the trusted digest covers the table. An offset that is not
    // the start of a member does not decode.
    let error = altered(&gzip, |json| {
        let other = place(json, "./etc/passwd") + 1;
        entry(json, "./etc/passwd")["offset"] = json!(other);
    });
    assert!(error.contains("damaged"), "{error}");
    // A chunk that exceeds the maximum block length.
    let error = altered(&gzip, |json| {
        entry(json, "./etc/passwd")["innerOffset"] = json!(1_u64 << 40)
    });
    assert!(error.contains("exceeds the limit"), "{error}");
    let error = altered(&fixture("merged"), |json| {
        entry(json, "./etc/passwd")["innerOffset"] = json!(1)
    });
    assert!(error.contains("digest"), "{error}");
}

#[test]
fn footers_that_lead_astray_are_refused() {
    let form = estargz(&plain(), &IndexedOptions::default());
    let told = |blob: &[u8]| open(blob, form.table.clone()).err().unwrap().to_string();
    let footer = form.blob.len() - 51;
    let mut blob = form.blob.clone();
    for (offset, expected) in [
        (footer as u64 + 1, "said to be at"),
        (u64::MAX, "said to be at"),
        (footer as u64, "said to be at"),
        (3, "cannot be decoded"),
        (0, "behind the data"),
    ] {
        blob[footer + 16..footer + 32].copy_from_slice(format!("{offset:016x}").as_bytes());
        let error = told(&blob);
        assert!(error.contains(expected), "{offset:#x}: {error}");
    }
    for bytes in [&b""[..], b"short", &form.blob[..footer + 50], &[0; 100]] {
        assert!(
            told(bytes).contains("does not end with the footer"),
            "{}",
            told(bytes)
        );
    }
    // The footer of stargz, the predecessor of eStargz.
    let mut old = form.blob[..footer].to_vec();
    old.extend(b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x16\x00");
    old.extend(format!("{:016x}STARGZ", form.data_len).as_bytes());
    old.extend(b"\x01\0\0\xff\xff\0\0\0\0\0\0\0\0");
    assert!(open(&old, form.table.clone()).is_ok());
    // The digest of another table.
    let mut table = form.table.clone();
    table.digest[0] ^= 1;
    let error = open(&form.blob, table).err().unwrap().to_string();
    assert!(error.contains("has the digest sha256:"), "{error}");
    let form = zstd_chunked(&plain(), &IndexedOptions::default());
    for (offset, len, decoded_len, expected) in [
        (0, 0, 0, "said to be at"),
        (1, u64::MAX, 10, "said to be at"),
        (form.blob.len() as u64, 1, 10, "said to be at"),
        (0, 10, 10, "has the digest"),
        (0, 10, u64::MAX, "exceeds the limit"),
    ] {
        let place = TablePlace::At {
            offset,
            len,
            decoded_len,
        };
        let table = ProvenTable {
            place,
            ..form.table.clone()
        };
        let error = open(&form.blob, table).err().unwrap().to_string();
        assert!(error.contains(expected), "{offset} {len}: {error}");
    }
}

#[test]
fn a_table_of_many_entries_takes_bounded_memory() {
    let mut limits = Limits::default();
    limits.walk_bytes = 100_000;
    let entries: Vec<Value> = (0..2000)
        .map(|number| json!({"name": number.to_string(), "type": "dir"}))
        .collect();
    let form = estargz_of(
        Vec::new(),
        &json!({"version": 1, "entries": entries}).to_string(),
    );
    let with = |limits: Limits| {
        let mut with = OpenWith::new(Arc::new(MemorySource::new(&form.blob[..])));
        (with.limits, with.archive.table) = (limits, Some(form.table.clone()));
        Tar::open_with(&with).err().map(|error| error.to_string())
    };
    assert_eq!(with(Limits::default()), None);
    assert!(
        with(limits.clone())
            .unwrap()
            .contains("exceeds the limit of 50000")
    );
    limits.walk_bytes = 400_000;
    assert!(
        with(limits.clone())
            .unwrap()
            .contains("memory for the walk")
    );
    limits.walk_bytes = 4_000_000;
    limits.tree_entries = 1000;
    assert!(with(limits).unwrap().contains("entries of the tree"));
}

#[test]
fn mutations_of_tables_bring_errors_and_nothing_else() {
    let plain = archive(&[
        member(b'5', b"dir/", b"", b""),
        member(b'0', b"dir/file", b"", &[7; 2000]),
        member(b'2', b"dir/link", b"file", b""),
    ]);
    let options = IndexedOptions {
        chunk_len: 900,
        landmark: Some("dir/link".to_string()),
    };
    let (gzip, zstd) = (estargz(&plain, &options), zstd_chunked(&plain, &options));
    let input = |choice: u8, form: &IndexedArchive| {
        [
            &[choice],
            form.json.as_bytes(),
            &[0],
            &form.blob[..form.data_len],
        ]
        .concat()
    };
    for seed in [input(1, &gzip), input(2, &zstd)] {
        assert_eq!(forerun_tar::fuzzing::table(&seed).len(), 0);
        mutate::each(&seed, 3000, |bytes| {
            let _errors = forerun_tar::fuzzing::table(bytes);
        });
    }
    let seed = [&[0], &gzip.blob[..]].concat();
    mutate::each(&seed, 1000, |bytes| {
        let _errors = forerun_tar::fuzzing::table(bytes);
    });
}
