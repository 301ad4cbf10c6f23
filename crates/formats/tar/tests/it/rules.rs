//! The rules by which members become a tree.

use std::ops::ControlFlow;

use forerun_vfs::{FileSystem, FileType, Inferred, Place};

use crate::common::{archive, member, node, open, record};

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
    kinds(
        &[inside.clone(), file.clone()],
        &[("a", FILE), ("a/b", None)],
        0,
    );
    kinds(
        &[file.clone(), dir.clone(), inside.clone()],
        &[("a/b", FILE)],
        0,
    );
    kinds(&[inside.clone(), dir], &[("a/b", FILE)], 0);
    // A file is no parent.
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
