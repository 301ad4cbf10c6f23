//! The rules of the tree: names, kinds, modes, owners and times of members.

use forerun_vfs::{FileSystem, FileType, Timestamp};
use forerun_zip::fuzzing::maker::{Made, archive, field};
use forerun_zip::fuzzing::seeds;

use crate::common::{node, open, open_damaged, problems, tree, warnings};

fn file(name: &[u8]) -> Made {
    Made::new(name, 0o100_644, 0, name)
}

#[test]
fn names_that_no_tree_has_are_left_out() {
    let members = [
        b"../up".as_slice(),
        b"a/../b",
        b"/absolute",
        b"./here//twice",
        b"nul\0",
        b"file",
        b"file/below",
        b"",
    ];
    let bytes = archive(&members.map(file));
    let zip = open(&bytes);
    let shown: Vec<Vec<u8>> = tree(&zip, &bytes).unwrap().nodes.into_keys().collect();
    let expected: [&[u8]; 5] = [b"", b"absolute", b"file", b"here", b"here/twice"];
    assert_eq!(shown, expected);
    let expected = [
        "\"../up\" is left out: it names a parent directory with ..",
        "\"a/../b\" is left out: it names a parent directory with ..",
        "\"nul\\0\" is left out: name contains a NUL byte",
        "\"file/below\" is left out: one of its parents is not a directory",
        "\"\" is left out: it is the root but not a directory",
    ];
    assert_eq!(warnings(&zip), expected);
    assert!(problems(&zip).len() >= expected.len());
}

#[test]
fn the_last_member_of_a_name_counts() {
    let dir = |mode: u32| Made::new(b"d/", 0o040_000 | mode, 0, b"");
    let twice = Made::new(b"d/a", 0o100_600, 8, b"second");
    let replaced = Made::new(b"e", 0o100_600, 0, b"now a file");
    let bytes = archive(&[
        dir(0o700),
        file(b"d/a"),
        twice,
        dir(0o711),
        file(b"e/x"),
        replaced,
    ]);
    let zip = open(&bytes);
    let nodes = tree(&zip, &bytes).unwrap().nodes;
    let paths: Vec<&[u8]> = nodes.keys().map(|path| &path[..]).collect();
    assert_eq!(paths, [&b""[..], b"d", b"d/a", b"e"]);
    assert_eq!(zip.metadata(node(&zip, "d")).unwrap().mode, 0o711);
    assert_eq!(zip.metadata(node(&zip, "d/a")).unwrap().size, 6);
    let told =
        ["d/a", "d/", "e"].map(|path| format!("{path:?} comes several times; the last one counts"));
    assert_eq!(warnings(&zip), told);
}

#[test]
fn members_of_other_systems_have_the_modes_of_the_mount() {
    let mut read_only = Made::new(b"read only", 0, 0, b"");
    (read_only.host, read_only.attributes) = (0, 1);
    let mut folder = Made::new(b"folder", 0, 0, b"");
    (folder.host, folder.attributes) = (10, 0x10);
    let zip = open(&archive(&[read_only, folder]));
    let metadata = |path| zip.metadata(node(&zip, path)).unwrap();
    assert_eq!(metadata("read only").mode, 0o444);
    let folder = metadata("folder");
    assert_eq!((folder.kind, folder.mode), (FileType::Directory, 0o755));
    assert!(!zip.volume().has_owners);
}

#[test]
fn a_member_that_was_read_from_a_pipe_is_a_file() {
    let mut member = file(b"-");
    member.attributes = 0o010_660 << 16;
    let zip = open(&archive(&[member]));
    let metadata = zip.metadata(node(&zip, "-")).unwrap();
    assert_eq!((metadata.kind, metadata.mode), (FileType::Regular, 0o660));
    assert!(metadata.size > 0);
}

#[test]
fn owners_and_times_are_those_of_extra_fields() {
    let mut member = file(b"a");
    member.extra = [
        field(0x5455, &[1, 0, 0, 0, 0x80]),
        field(0x7875, &[1, 2, 1, 1, 2, 2, 2]),
    ]
    .concat();
    let zip = open(&archive(&[member, file(b"b")]));
    let metadata = |path| zip.metadata(node(&zip, path)).unwrap();
    let (a, b) = (metadata("a"), metadata("b"));
    assert_eq!(
        (a.uid, a.gid, a.mtime.seconds),
        (0x101, 0x202, -0x8000_0000)
    );
    assert_eq!((b.uid, b.gid), (0, 0));
    let noon = Timestamp {
        seconds: 1_709_208_000,
        nanoseconds: 0,
    };
    assert_eq!(b.mtime, noon);
    assert!(zip.volume().has_owners);
}

#[test]
fn members_that_cannot_be_read_are_named() {
    let seeds = seeds();
    let (_, bytes) = seeds.iter().find(|(name, _)| *name == "fields").unwrap();
    let zip = open_damaged(bytes);
    let told = [
        "1 encrypted members cannot be read",
        "1 members are compressed in ways that are not supported",
    ];
    assert_eq!(warnings(&zip), told);
    for (path, expected) in [
        ("secret", "encrypted members of zip archives"),
        ("bzip2", "members of zip archives compressed with bzip2"),
    ] {
        let mapped = zip.map(node(&zip, path), 0..1, &mut |_| {
            panic!("an extent of {path}")
        });
        let error = mapped.unwrap_err();
        assert_eq!(error.kind(), "unsupported");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn all_methods_decode_to_the_contents() {
    for (name, bytes) in seeds() {
        if name == "fields" || name == "large" {
            continue;
        }
        let zip = open(&bytes);
        assert_eq!(problems(&zip), Vec::<String>::new(), "{name}");
        let nodes = tree(&zip, &bytes).unwrap().nodes;
        assert_eq!(nodes.len(), if name == "empty" { 1 } else { 10 }, "{name}");
    }
}
