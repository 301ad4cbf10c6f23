//! The rules by which members become a tree.

use std::ops::ControlFlow;

use forerun_vfs::{FileSystem, FileType, Inferred, Place};

use crate::common::{archive, member, node, open, record, sparse, sum, xattrs};

fn kinds(members: &[Vec<u8>], expected: &[(&str, Option<FileType>)], warnings: usize) {
    let fs = open(&archive(members));
    for (path, kind) in expected {
        let found = node(&fs, path).map(|node| fs.metadata(node).unwrap().kind);
        assert_eq!(found, *kind, "{path}");
    }
    let told = &fs.volume().warnings;
    assert_eq!(told.len(), warnings, "{told:?}");
}

const FILE: Option<FileType> = Some(FileType::Regular);
const DIR: Option<FileType> = Some(FileType::Directory);

#[test]
fn later_members_replace_earlier_ones() {
    let twice = [
        member(b'0', b"a", b"", b"old"),
        member(b'0', b"./a", b"", b"newer"),
    ];
    let fs = open(&archive(&twice));
    let file = node(&fs, "a").unwrap();
    assert_eq!(fs.metadata(file).unwrap().size, 5);
    let inside = member(b'0', b"a/b", b"", b"");
    let file = member(b'0', b"a", b"", b"");
    let dir = member(b'5', b"a/", b"", b"");
    // tar does not remove a directory with entries.
    kinds(
        &[inside.clone(), file.clone()],
        &[("a", DIR), ("a/b", FILE)],
        1,
    );
    kinds(&[dir.clone(), file.clone()], &[("a", FILE)], 0);
    kinds(
        &[file.clone(), dir.clone(), inside.clone()],
        &[("a/b", FILE)],
        0,
    );
    kinds(&[inside.clone(), dir], &[("a/b", FILE)], 0);
    // A file cannot be a parent.
    kinds(&[file, inside], &[("a", FILE), ("a/b", None)], 1);
}

#[test]
fn paths_never_climb() {
    let members = [
        member(b'0', b"../up", b"", b""),
        member(b'0', b"a/../../up", b"", b""),
        member(b'0', b"/abs//x", b"", b""),
        member(b'2', b"link", b"/abs", b""),
        member(b'0', b"link/through", b"", b""),
    ];
    let expected = [
        ("up", None),
        ("abs", DIR),
        ("abs/x", FILE),
        ("abs/through", None),
    ];
    kinds(&members, &expected, 3);
}

#[test]
fn hard_links_name_files_before_them() {
    let members = [
        member(b'0', b"a", b"", b"x"),
        member(b'1', b"d/b", b"./a", b""),
        member(b'1', b"c", b"missing", b""),
        member(b'1', b"e", b"d", b""),
        member(b'1', b"a", b"a", b""),
    ];
    kinds(&members, &[("d/b", FILE), ("c", None), ("e", None)], 2);
    let fs = open(&archive(&members));
    assert_eq!(node(&fs, "a"), node(&fs, "d/b"));
    assert_eq!(fs.metadata(node(&fs, "a").unwrap()).unwrap().nlink, 2);
}

#[test]
fn archives_one_after_the_other_are_one() {
    let mut bytes = archive(&[member(b'0', b"a", b"", b"")]);
    bytes.extend([0; 9000_usize.next_multiple_of(512)]);
    bytes.extend(archive(&[member(b'0', b"b", b"", b"")]));
    bytes.extend([7; 100]);
    let fs = open(&bytes);
    assert!(node(&fs, "a").is_some() && node(&fs, "b").is_some());
    assert_eq!(fs.volume().warnings.len(), 1);
    assert_eq!(fs.volume().image_len, bytes.len() as u64 - 100);
}

#[test]
fn pax_records_apply_to_one_member_and_global_ones_to_all() {
    let records = [
        record("path", b"long"),
        record("uid", b"4000000000"),
        record("mtime", b"-1.5"),
        record("SCHILY.xattr.user.a", b"1"),
        record("LIBARCHIVE.xattr.user%2Eb", b"Mg=="),
    ];
    let members = [
        member(b'g', b"g", b"", &record("gid", b"77")),
        member(b'x', b"x", b"", &records.concat()),
        member(b'0', b"short", b"", b""),
        member(b'0', b"next", b"", b""),
    ];
    let fs = open(&archive(&members));
    let long = fs.metadata(node(&fs, "long").unwrap()).unwrap();
    assert_eq!((long.uid, long.gid), (4_000_000_000, 77));
    assert_eq!(
        (long.mtime.seconds, long.mtime.nanoseconds),
        (-2, 500_000_000)
    );
    let mut xattrs = Vec::new();
    let visit = &mut |name: &[u8], value: &[u8]| xattrs.push((name.to_vec(), value.to_vec()));
    fs.xattrs(node(&fs, "long").unwrap(), visit).unwrap();
    let expected = [("user.a", "1"), ("user.b", "2")];
    assert_eq!(
        xattrs,
        expected.map(|(name, value)| (name.into(), value.into()))
    );
    let next = fs.metadata(node(&fs, "next").unwrap()).unwrap();
    assert_eq!((next.uid, next.gid), (1, 77));
}

#[test]
fn holes_are_mapped_as_such() {
    let records = [
        record("GNU.sparse.size", b"5000"),
        record("GNU.sparse.numblocks", b"2"),
        record("GNU.sparse.map", b"1000,3,4000,5"),
        record("GNU.sparse.name", b"holes"),
    ];
    let members = [
        member(b'x', b"x", b"", &records.concat()),
        member(b'0', b"substitute", b"", b"abcdefgh"),
    ];
    let fs = open(&archive(&members));
    let mut extents = Vec::new();
    fs.map(node(&fs, "holes").unwrap(), 0..9999, &mut |extent| {
        let stored = match extent.place {
            Place::Stored { offset, .. } => Some(offset),
            _ => None,
        };
        extents.push((extent.logical, stored));
        ControlFlow::Continue(())
    })
    .unwrap();
    let expected = [
        (0..1000, None),
        (1000..1003, Some(1536)),
        (1003..4000, None),
        (4000..4005, Some(1539)),
        (4005..5000, None),
    ];
    assert_eq!(extents, expected);
}

#[test]
fn directories_that_only_paths_name_are_implied() {
    let fs = open(&archive(&[
        member(b'0', b"a/b/file", b"", b"1"),
        member(b'5', b"a/c/", b"", b""),
    ]));
    for (path, expected) in [
        ("", true),
        ("a", true),
        ("a/b", true),
        ("a/c", false),
        ("a/b/file", false),
    ] {
        assert_eq!(
            fs.is_implied(node(&fs, path).unwrap()),
            expected,
            "{path:?}"
        );
    }
}

/// Returns a member whose header is changed before its checksum is computed.
fn changed(kind: u8, name: &[u8], data: &[u8], fields: &[(usize, &[u8])]) -> Vec<u8> {
    let mut made = member(kind, name, b"", data);
    for (at, bytes) in fields {
        made[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    sum(&mut made);
    made
}

#[test]
fn archives_without_a_magic_number_are_recognised() {
    let fields: &[(usize, &[u8])] = &[(257, &[0; 8])];
    for kind in [0, b'0', b'5', b'V'] {
        let mut bytes = changed(kind, b"a", b"", fields);
        // A probe gets more bytes than a header.
        bytes.extend([7; 4096]);
        assert!((forerun_tar::FORMAT.probe)(&bytes), "{kind}");
    }
}

#[test]
fn empty_numbers_are_zero() {
    let fields: &[(usize, &[u8])] = &[(108, &[0; 8]), (116, b"        "), (136, &[0; 12])];
    let fs = open(&archive(&[changed(b'0', b"a", b"", fields)]));
    let found = fs.metadata(node(&fs, "a").unwrap()).unwrap();
    assert_eq!((found.uid, found.gid, found.mtime.seconds), (0, 0, 0));
}

#[test]
fn a_field_that_is_no_number_costs_its_member_only() {
    let last = || member(b'0', b"last", b"", b"");
    for (at, len) in [(100, 8), (108, 8), (116, 8)] {
        let fields: &[(usize, &[u8])] = &[(at, &vec![b'9'; len])];
        let members = [changed(b'0', b"a", b"data", fields), last()];
        kinds(&members, &[("a", None), ("last", FILE)], 1);
        assert_eq!(open(&archive(&members)).volume().left_out, 1);
    }
    let fields: &[(usize, &[u8])] = &[(329, b"99999999")];
    let members = [changed(b'3', b"a", b"", fields), last()];
    kinds(&members, &[("a", None), ("last", FILE)], 1);
    // A bad time does not make a member invalid.
    let fields: &[(usize, &[u8])] = &[(136, b"999999999999")];
    let members = [changed(b'0', b"a", b"data", fields), last()];
    kinds(&members, &[("a", FILE), ("last", FILE)], 1);
}

#[test]
fn records_that_are_not_valid_cost_as_little_as_they_can() {
    let check = |records: &[u8], kind, warnings| {
        let members = [
            member(b'x', b"x", b"", records),
            member(b'0', b"a", b"", b"data"),
            member(b'0', b"last", b"", b""),
        ];
        kinds(&members, &[("a", kind), ("last", FILE)], warnings);
    };
    let long = vec![b'v'; 70_000];
    for (key, value, kind) in [
        ("mtime", &b"999xxx9324.4"[..], FILE),
        ("SCHILY.xattr.user.a\0b", b"1", FILE),
        ("SCHILY.xattr.user.long", &long, FILE),
        ("LIBARCHIVE.xattr.user.a", b"!", FILE),
        ("uid", b"4294967296", None),
        ("gid", b"x", None),
        ("GNU.sparse.size", b"x", None),
        ("GNU.sparse.major", b"2", None),
    ] {
        check(&record(key, value), kind, 1);
    }
    // Records after a damaged one are unknown, and may include the name.
    check(b"9 a=b\n", None, 1);
    check(b"", FILE, 0);
}

#[test]
fn an_extended_header_replaces_the_one_before_it() {
    let members = [
        member(b'x', b"x", b"", &record("path", b"first")),
        member(b'x', b"x", b"", &record("linkpath", b"target")),
        member(b'2', b"link", b"", b""),
        // This extended header belongs to no file.
        member(b'x', b"x", b"", &record("path", b"none")),
        vec![0; 512],
        member(b'0', b"last", b"", b""),
    ];
    let link = Some(FileType::Symlink);
    let expected = [
        ("link", link),
        ("first", None),
        ("none", None),
        ("last", FILE),
    ];
    kinds(&members, &expected, 0);
}

#[test]
fn one_block_of_zeros_may_end_an_archive() {
    let mut bytes = member(b'0', b"a", b"", b"");
    bytes.extend([0; 512]);
    bytes.extend([7; 1024]);
    let fs = open(&bytes);
    assert!(node(&fs, "a").is_some());
    assert_eq!(fs.volume().warnings.len(), 1);
}

#[test]
fn names_in_records_end_with_a_nul_and_those_of_attributes_are_decoded() {
    let records = [
        record("path", b"name\0rest"),
        record("SCHILY.xattr.user.a%3Db%25c%20", b"1"),
    ];
    let fs = open(&archive(&[
        member(b'x', b"x", b"", &records.concat()),
        member(b'0', b"a", b"", b""),
    ]));
    let expected = vec![(b"user.a=b%c%20".to_vec(), b"1".to_vec())];
    assert_eq!(xattrs(&fs, "name"), expected);
}

#[test]
fn a_map_that_is_not_valid_costs_its_file_only() {
    for text in [
        &b"x\n"[..],
        b"1\n9\n9\n",
        b"1\n0\n3\n",
        b"99999999999999999999\n",
    ] {
        let (records, mut map) = sparse(b"10", text, b"abcdef");
        // Three data bytes outside of all ranges are more than padding.
        map.resize(1500, 1);
        let members = [
            member(b'x', b"x", b"", &records),
            member(b'0', b"holes", b"", &map),
            member(b'0', b"last", b"", b""),
        ];
        kinds(&members, &[("holes", None), ("last", FILE)], 1);
    }
}

#[test]
fn the_size_of_a_sparse_file_may_be_its_length() {
    // bsdtar writes this for files of 8 GiB and more.
    let size = b"10737418244";
    let (records, map) = sparse(size, b"1\n10737418240\n4\n", b"last");
    let records = [record("size", size), records];
    let fs = open(&archive(&[
        member(b'x', b"x", b"", &records.concat()),
        member(b'0', b"holes", b"", &map),
        member(b'0', b"last", b"", b""),
    ]));
    let found = fs.metadata(node(&fs, "holes").unwrap()).unwrap();
    assert_eq!(found.size, 10_737_418_244);
    assert!(node(&fs, "last").is_some());
}

#[test]
fn members_whose_form_is_not_supported_are_left_out() {
    let members = [
        member(b'N', b"names", b"", b"Rename a to b"),
        member(b'S', b"star", b"", b"data"),
        member(b'Q', b"odd", b"", b"data"),
        member(b'0', b"last", b"", b""),
    ];
    let expected = [
        ("names", None),
        ("star", None),
        ("odd", FILE),
        ("last", FILE),
    ];
    kinds(&members, &expected, 3);
}
