//! Hostile archives: the exact errors, and mutations of every byte.

use std::sync::Arc;

use forerun_io::{Limits, MemorySource};
use forerun_tar::{FORMAT, Tar, fuzzing};
use forerun_testkit::conformance::check_faults;
use forerun_testkit::mutate::in_time;

use crate::common::{archive, member, record, sparse, sum};

fn error(bytes: &[u8]) -> String {
    let opened = Tar::open(Arc::new(MemorySource::new(bytes)), &Limits::default());
    opened.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn damage_is_named_with_its_place() {
    let check = |bytes: &[u8], expected: &str| {
        let error = error(bytes);
        assert!(error.contains(expected), "{error}");
    };
    let file = member(b'0', b"a", b"", &[b'x'; 600]);
    let mut damaged = archive(&[file.clone(), file.clone()]);
    damaged[1536] ^= 1;
    check(&damaged, "checksum");
    check(&damaged, "0x600");
    check(&file[..1000], "ends at 1112");
    check(&file[..300], "ends at 512");
    check(&file[..200], "does not begin with a header");
    check(&archive(&[member(b'M', b"a", b"", b"")]), "several volumes");
    let mut huge = member(b'L', b"x", b"", b"");
    huge[124..136].copy_from_slice(b"77777777777\0");
    sum(&mut huge);
    check(&archive(&[huge]), "more than 1048576");
    // Without the size, the next header cannot be found.
    let size = [
        member(b'x', b"x", b"", &record("size", b"x")),
        member(b'0', b"a", b"", b"abcde"),
    ];
    check(&archive(&size), "the value of size");
}

#[test]
fn an_index_is_bounded_in_memory() {
    let mut limits = Limits::default();
    limits.walk_bytes = 20_000;
    let names = (0..200).map(|n| member(b'0', format!("{n}").as_bytes(), b"", b""));
    let bytes = archive(&names.collect::<Vec<_>>());
    let opened = Tar::open(Arc::new(MemorySource::new(bytes)), &limits);
    assert_eq!(opened.map(|_| ()).unwrap_err().kind(), "limit");
}

#[test]
fn what_later_members_replace_takes_no_memory() {
    let mut limits = Limits::default();
    limits.walk_bytes = 100_000;
    let long = record("linkpath", &[b'x'; 1000]);
    let link = [member(b'x', b"x", b"", &long), member(b'2', b"a", b"", b"")];
    let bytes = archive(&vec![link.concat(); 200]);
    Tar::open(Arc::new(MemorySource::new(bytes)), &limits).unwrap();
}

#[test]
fn every_byte_may_be_anything() {
    let (sparse, map) = sparse(b"900", b"1\n100\n3\n", b"abc");
    let bytes = archive(&[
        member(b'L', b"long", b"", b"d/name\0"),
        member(b'0', b"short", b"", b"data"),
        member(b'1', b"hard", b"d/name", b""),
        member(b'2', b"soft", b"d", b""),
        member(b'x', b"x", b"", &sparse),
        member(b'0', b"holes", b"", &map),
        member(b'3', b"device", b"", b""),
    ]);
    assert!(fuzzing::walk(&bytes).is_empty());
    for at in 0..bytes.len() {
        for byte in [0, b'7', 0xff] {
            let mut changed = bytes.clone();
            changed[at] = byte;
            in_time(|| fuzzing::walk(&changed));
            // The same change with a corrected checksum.
            sum(&mut changed[at / 512 * 512..]);
            in_time(|| fuzzing::walk(&changed));
        }
    }
    for len in 0..bytes.len() {
        in_time(|| fuzzing::walk(&bytes[..len]));
    }
}

#[test]
fn a_kept_index_may_hold_anything() {
    let seed = fuzzing::kept_seed();
    assert!(seed.len() > 50 && fuzzing::kept(&seed).is_empty());
    for at in 0..seed.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = seed.clone();
            changed[at] = byte;
            // If the stored index is invalid, the driver reads the archive, which is sound.
            in_time(|| fuzzing::kept(&changed));
        }
        assert!(in_time(|| fuzzing::kept(&seed[..at])).is_empty());
    }
}

#[test]
fn a_fault_at_any_read_is_an_error_once_and_forgotten() {
    let image = archive(&[
        member(b'5', b"d", b"", b""),
        member(b'0', b"d/a", b"", &[b'x'; 3000]),
        member(b'2', b"link", b"d/a", b""),
    ]);
    check_faults(&FORMAT, &image);
}

#[test]
fn sizes_that_no_file_can_have_are_refused() {
    let most = |size: u64| {
        let mut bytes = archive(&[member(b'0', b"name", b"", b"data")]);
        // Large numbers are binary, with a mark before them.
        bytes[124..136].copy_from_slice(&[&[0x80, 0, 0, 0][..], &size.to_be_bytes()].concat());
        sum(&mut bytes);
        error(&bytes)
    };
    for size in [1 << 40, (1 << 63) - 1024] {
        assert!(
            most(size).contains("the data that begins here ends at"),
            "{size}"
        );
    }
    for size in [(1 << 63) - 1, 1 << 63, u64::MAX] {
        let error = most(size);
        let expected = ["more than any file can have", "field size"];
        assert!(expected.iter().any(|part| error.contains(part)), "{error}");
    }
    for size in ["9223372036854775808", "18446744073709551615"] {
        for key in ["size", "GNU.sparse.size"] {
            let mut records = vec![record(key, size.as_bytes())];
            if key != "size" {
                records.push(record("GNU.sparse.map", b"0,4"));
            }
            let records = records.concat();
            let bytes = archive(&[
                member(b'x', b"x", b"", &records),
                member(b'0', b"name", b"", b"data"),
            ]);
            let error = error(&bytes);
            assert!(
                error.contains("more than any file can have"),
                "{key}: {error}"
            );
        }
    }
}
