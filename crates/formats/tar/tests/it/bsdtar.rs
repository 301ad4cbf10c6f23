//! libarchive's `bsdtar` as an oracle, in both directions: it writes archives that forerun reads,
//! and unpacks the archives of the tests.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use forerun_io::{FileSource, Limits, ReadAt};
use forerun_tar::Tar;
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::{Keeps, Shape, TreeModel, require, temp_dir};
use forerun_vfs::{ACL_ACCESS, ACL_DEFAULT, FileSystem};

use crate::common::{archive, everything, node, open, record, xattrs};

/// Runs a program. Returns false if it is not installed.
fn run(program: &str, arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> bool {
    let Some(program) = require::program(program) else {
        return false;
    };
    let mut command = Command::new(program);
    let output = command
        .args(arguments.iter().map(|argument| argument.as_ref()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    true
}

fn read(archive: &Path) -> (Tar, TreeModel) {
    let source: Arc<dyn ReadAt> = Arc::new(FileSource::open(archive).unwrap());
    let fs = Tar::open(Arc::clone(&source), &Limits::default()).unwrap();
    check_filesystem(&fs, &Limits::default());
    let tree = TreeModel::of_image(&fs, &*source).unwrap();
    (fs, tree)
}

#[test]
fn archives_of_bsdtar_read_as_their_trees() {
    let all = [
        Shape::Empty,
        Shape::Mixed,
        Shape::HardLinks,
        Shape::Devices,
        Shape::LongNames,
        Shape::OddLengths,
        Shape::Symlinks,
    ];
    for shape in all {
        if shape.needs_root() && !require::root() {
            continue;
        }
        let dir = temp_dir("bsdtar");
        let (tree, archive) = (dir.path().join("tree"), dir.path().join("archive"));
        fs::create_dir(&tree).unwrap();
        shape.populate(&tree);
        crate::oracles::remove_sockets(&tree);
        let expected = TreeModel::of_host(&tree).unwrap();
        for format in ["pax", "gnutar"] {
            let arguments: [&dyn AsRef<std::ffi::OsStr>; 7] =
                [&"--format", &format, &"-cf", &archive, &"-C", &tree, &"."];
            if run("bsdtar", &arguments) {
                let (fs, actual) = read(&archive);
                assert_eq!(fs.volume().warnings, Vec::<String>::new(), "{format}");
                expected.assert_same(&actual, &Keeps::EVERYTHING);
            }
        }
    }
}

#[test]
fn bsdtar_unpacks_what_the_driver_shows() {
    if !require::root() {
        return;
    }
    let dir = temp_dir("bsdtar");
    let (out, file) = (dir.path().join("out"), dir.path().join("archive"));
    fs::create_dir(&out).unwrap();
    fs::write(&file, archive(&everything())).unwrap();
    let (_, mut shown) = read(&file);
    if !run("bsdtar", &[&"-xpf", &file, &"--numeric-owner", &"-C", &out]) {
        return;
    }
    let mut unpacked = TreeModel::of_host(&out).unwrap();
    // No member describes these directories, so their owner and times come from unpacking.
    for tree in [&mut shown, &mut unpacked] {
        tree.nodes
            .retain(|path, _| !matches!(&path[..], b"" | b"implied" | b"implied/deeper"));
    }
    unpacked.assert_same(&shown, &Keeps::EVERYTHING);
}

/// Returns the attributes of a host file that contain access control lists.
fn host_acls(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let names = [ACL_ACCESS, ACL_DEFAULT].map(|name| std::str::from_utf8(name).unwrap());
    let values = names.map(|name| Some((name.into(), xattr::get(path, name).unwrap()?)));
    values.into_iter().flatten().collect()
}

#[test]
fn access_control_lists_of_bsdtar_are_those_of_the_files() {
    let dir = temp_dir("bsdtar");
    let (tree, archive) = (dir.path().join("tree"), dir.path().join("archive"));
    fs::create_dir_all(tree.join("dir")).unwrap();
    for name in ["plain", "several"] {
        fs::write(tree.join(name), name).unwrap();
    }
    for (rules, name) in [
        ("u:12345:rwx,u:54321:r,g:12345:-,m::rx", "several"),
        ("d:u::rwx,d:g::rx,d:o::-", "dir"),
    ] {
        if !run("setfacl", &[&"-m", &rules, &tree.join(name)]) {
            return;
        }
    }
    for program in ["tar", "bsdtar"] {
        // GNU tar writes the names of known users; bsdtar also writes their numbers.
        if program == "bsdtar" && !run("setfacl", &[&"-m", &"u:3:r", &tree.join("several")]) {
            return;
        }
        let arguments: [&dyn AsRef<std::ffi::OsStr>; 8] = [
            &"--format=pax",
            &"--acls",
            &"--numeric-owner",
            &"-cf",
            &archive,
            &"-C",
            &tree,
            &".",
        ];
        if !run(program, &arguments) {
            return;
        }
        let (fs, _) = read(&archive);
        assert_eq!(fs.volume().warnings, Vec::<String>::new(), "{program}");
        for (name, count) in [("plain", 0), ("several", 1), ("dir", 1)] {
            let expected = host_acls(&tree.join(name));
            assert_eq!(expected.len(), count, "{name}");
            assert_eq!(xattrs(&fs, name), expected, "{program}, {name}");
        }
    }
}

#[test]
fn bsdtar_unpacks_the_access_control_lists_that_are_shown() {
    let dir = temp_dir("bsdtar");
    let (out, file) = (dir.path().join("out"), dir.path().join("archive"));
    fs::create_dir(&out).unwrap();
    let access = "user::rw-,user:lisa:r--:502,group::r--,group:9:rwx,mask::rwx,other::---";
    let default = "user::rwx,group::r-x,other::---";
    let members = [
        crate::common::member(
            b'x',
            b"x",
            b"",
            &[
                record("SCHILY.acl.access", access.as_bytes()),
                record("SCHILY.acl.default", default.as_bytes()),
            ]
            .concat(),
        ),
        crate::common::member(b'5', b"dir/", b"", b""),
    ];
    let bytes = archive(&members);
    fs::write(&file, &bytes).unwrap();
    if !run("bsdtar", &[&"-xpf", &file, &"--acls", &"-C", &out]) {
        return;
    }
    let shown = xattrs(&open(&bytes), "dir");
    assert_eq!(shown.len(), 2);
    assert_eq!(shown, host_acls(&out.join("dir")));
}

#[test]
fn lists_that_cannot_be_used_are_reported() {
    for (text, expected) in [
        (
            "user::rw-,user:lisa:r--,group::r--,mask::r--,other::---",
            "without its number",
        ),
        ("user::rw-,group::r--", "lacks an entry"),
        ("nonsense", "entry 0 is not valid"),
    ] {
        let members = [
            crate::common::member(
                b'x',
                b"x",
                b"",
                &record("SCHILY.acl.access", text.as_bytes()),
            ),
            crate::common::member(b'0', b"file", b"", b""),
        ];
        let fs = open(&archive(&members));
        assert!(node(&fs, "file").is_some());
        assert_eq!(xattrs(&fs, "file"), []);
        let [warning] = &fs.volume().warnings[..] else {
            panic!("{text}");
        };
        let place = "\"file\": the access control list";
        assert!(warning.contains(place), "{warning}");
        assert!(warning.contains(expected), "{warning}");
    }
}
