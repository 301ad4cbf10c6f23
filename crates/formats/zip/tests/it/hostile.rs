//! Hostile archives: the exact errors, and mutations of every byte.

use std::sync::Arc;

use forerun_engine::{EngineOptions, MetadataSource, Reader};
use forerun_io::{Limits, MemorySource, Observer};
use forerun_testkit::conformance::check_faults;
use forerun_testkit::mutate::{extremes, in_time};
use forerun_vfs::FileSystem;
use forerun_zip::FORMAT;
use forerun_zip::Zip;
use forerun_zip::fuzzing::maker::{Made, archive};
use forerun_zip::fuzzing::{self, seeds};

use crate::common::{node, open, open_damaged, problems, refused, source, tree};

/// Offsets of the records in an archive of one member, `a` with the contents `text`.
const ENTRY: usize = 35;
const END: usize = ENTRY + 47;

fn one(method: u16) -> Vec<u8> {
    let bytes = archive(&[Made::new(b"a", 0o100_644, method, b"text")]);
    if method == 0 {
        assert_eq!(bytes.len(), END + 22);
    }
    bytes
}

fn with(at: usize, value: &[u8]) -> Vec<u8> {
    let mut bytes = one(0);
    bytes[at..at + value.len()].copy_from_slice(value);
    bytes
}

#[test]
fn damage_of_the_end_is_named_with_its_place() {
    for (bytes, expected) in [
        (
            with(END, b"QK"),
            "no end of central directory record in the last 104 bytes",
        ),
        (
            with(END + 12, &[0xff]),
            "the central directory of 255 bytes at 0x23 does not end before the record at 0x52",
        ),
        (with(END + 16, &[0xff]), "at 0xff does not end before"),
        (with(END + 4, &[1]), "several disks"),
        (
            with(ENTRY, b"QK"),
            "[51, 4b, 01, 02] instead of a central file header",
        ),
        (
            with(ENTRY + 28, &[9]),
            "the entry takes 55 bytes; the central directory has 47",
        ),
        (with(ENTRY + 28, &[0]), "1 bytes after the last entry"),
    ] {
        let error = refused(&bytes);
        assert!(error.contains(expected), "{error}");
    }
    let zip = open(&with(END + 10, &[7]));
    let expected = "the central directory has 1 entries; the end record declares 7 (at 0x23)";
    assert_eq!(zip.volume().warnings, [expected]);
}

#[test]
fn damage_of_a_member_is_named_with_its_place() {
    for (bytes, expected) in [
        (
            with(0, b"QK"),
            "[51, 4b, 03, 04] instead of a local file header",
        ),
        (
            with(ENTRY + 42, &[60]),
            "does not end before the central directory",
        ),
        (
            with(ENTRY + 20, &[40]),
            "the data of 40 bytes at 0x1f does not end before",
        ),
        (
            with(ENTRY + 24, &[3]),
            "the member is not compressed and has 4 bytes instead of 3",
        ),
    ] {
        let zip = Zip::open(source(&bytes), &Limits::default()).unwrap();
        let mapped = zip.map(node(&zip, "a"), 0..1, &mut |_| panic!("an extent"));
        let error = mapped.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn contents_that_are_stored_are_compared_by_a_check() {
    let zip = open_damaged(&with(31, b"T"));
    let found = problems(&zip);
    assert!(
        found.iter().any(|problem| problem.contains("CRC-32")),
        "{found:?}"
    );
}

#[test]
fn headers_that_contradict_each_other_are_reported() {
    for (at, field) in [
        (8, "method"),
        (6, "encryption flag"),
        (14, "CRC-32"),
        (18, "compressed size"),
        (22, "size"),
    ] {
        let mut bytes = one(0);
        bytes[at] ^= 1;
        let found = problems(&open_damaged(&bytes));
        let expected = format!("another {field} than its entry in the central directory");
        assert!(
            found.iter().any(|problem| problem.contains(&expected)),
            "{found:?}"
        );
    }
}

#[test]
fn members_that_share_their_data_are_reported() {
    let mut bytes = archive(&[
        Made::new(b"a", 0o100_644, 0, b"text"),
        Made::new(b"b", 0o100_644, 0, b"text"),
    ]);
    let second = bytes.len() - 22 - 47;
    bytes[second + 42] = 0;
    let found = problems(&open_damaged(&bytes));
    let expected = "the member begins within another one, which ends at 0x23";
    assert!(
        found.iter().any(|problem| problem.contains(expected)),
        "{found:?}"
    );
}

#[test]
fn a_block_that_decodes_to_other_bytes_is_not_served() {
    let mut bytes = one(8);
    bytes[36] ^= 0x20;
    let memory: Arc<MemorySource> = Arc::new(MemorySource::new(&bytes[..]));
    let zip = Arc::new(Zip::open(source(&bytes), &Limits::default()).unwrap());
    let file = node(&zip, "a");
    let options = EngineOptions::default();
    let counted = forerun_io::Counted::new(
        memory,
        forerun_io::BlobId::IMAGE,
        Arc::<Observer>::default(),
    );
    let metadata = MetadataSource::new(counted.clone(), options.geometry(u64::MAX), 1 << 20);
    let reader = Reader::new(zip, counted, Arc::new(metadata), options, Limits::default());
    let error = reader.read(file, 0, 4).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("CRC-32"), "{error}");
}

#[test]
fn links_are_bounded() {
    for (target, is_ok) in [
        (&b"x"[..], true),
        (b"", false),
        (b"a\0b", false),
        (&[b'x'; 4097], false),
    ] {
        let zip = open_damaged(&archive(&[Made::new(b"l", 0o120_777, 8, target)]));
        assert_eq!(zip.read_link(node(&zip, "l")).is_ok(), is_ok, "{target:?}");
    }
}

#[test]
fn a_tree_is_bounded_in_memory() {
    let mut limits = Limits::default();
    limits.walk_bytes = 20_000;
    let names = (0..200).map(|n| Made::new(format!("{n}").as_bytes(), 0, 0, b""));
    let bytes = archive(&names.collect::<Vec<_>>());
    let opened = Zip::open(source(&bytes), &limits);
    assert_eq!(opened.map(|_| ()).unwrap_err().kind(), "limit");
}

#[test]
fn a_rescue_shows_the_members_before_the_damage() {
    let members = [b"a", b"b"].map(|name| Made::new(name, 0o100_644, 0, name));
    let mut bytes = archive(&members);
    let second = bytes.len() - 22 - 47;
    bytes[second] = 0;
    assert!(refused(&bytes).contains("instead of a central file header"));
    let mut with = forerun_vfs::OpenWith::new(source(&bytes));
    with.rescue = true;
    let zip = Zip::open_with(&with).unwrap();
    assert_eq!(tree(&zip, &bytes).unwrap().nodes.len(), 2);
    let told = &zip.volume().warnings;
    assert!(
        told.len() == 1 && told[0].contains("instead of a central file header"),
        "{told:?}"
    );
}

#[test]
fn every_byte_may_be_anything() {
    for (name, bytes) in seeds() {
        if name == "large" {
            continue;
        }
        let errors = fuzzing::walk(&bytes);
        assert_eq!(errors.is_empty(), name != "fields", "{name}: {errors:?}");
        for at in 0..bytes.len() {
            for byte in [0, 7, 0xff, bytes[at] ^ 1] {
                let mut changed = bytes.clone();
                changed[at] = byte;
                in_time(|| fuzzing::walk(&changed));
            }
        }
        for len in 0..bytes.len() {
            in_time(|| fuzzing::walk(&bytes[..len]));
        }
    }
}

#[test]
fn a_fault_at_any_read_is_an_error_once_and_forgotten() {
    let (_, image) = seeds().swap_remove(0);
    check_faults(&FORMAT, &image);
}

#[test]
fn the_largest_numbers_anywhere_are_errors() {
    for (name, bytes) in seeds() {
        if name != "large" {
            extremes(&bytes, 200, |bytes| {
                fuzzing::walk(bytes);
            });
        }
    }
}

#[test]
fn an_offset_that_overflows_with_the_bytes_before_the_archive_is_refused() {
    let mut made = Made::new(b"a", 0o100_644, 0, b"text");
    made.zip64 = true;
    let plain = archive(&[made]);
    let central = plain.windows(4).position(|bytes| bytes == b"PK\x01\x02");
    let entry = &plain[central.unwrap()..];
    // The zip64 field holds size, compressed size and offset.
    let field = entry.windows(4).position(|bytes| bytes == [1, 0, 24, 0]);
    let offset = central.unwrap() + field.unwrap() + 4 + 16;
    let mut far = plain;
    far[offset..offset + 8].fill(0xff);
    let error = refused(&[b"#!/bin/sh\n", &far[..]].concat());
    assert!(error.contains("header is too large"), "{error}");
    let zip = open_damaged(&far);
    let mapped = zip.map(node(&zip, "a"), 0..1, &mut |_| panic!("an extent"));
    let error = mapped.unwrap_err().to_string();
    assert!(error.contains("before the central directory"), "{error}");
}
