//! Archives of libarchive and of Python's zipfile: the driver reads the original trees from them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use forerun_io::{FileSource, Limits, ReadAt};
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::{Keeps, Shape, TreeModel, require, temp_dir};
use forerun_vfs::FileSystem;
use forerun_zip::Zip;

use crate::common::{problems, warnings};

/// The properties that the format keeps, as these programs write them.
const KEEPS: Keeps = Keeps {
    hard_links: false,
    special: false,
    ..Keeps::EVERYTHING
};

/// A Python script that packs a tree into an archive, with the number of a method, after a prefix.
const ZIPFILE: &str = "
import os, sys, zipfile
tree, archive, method, prefix = sys.argv[1:]
with open(archive, 'wb') as f:
    f.write(prefix.encode())
    with zipfile.ZipFile(f, 'w', int(method), allowZip64=True) as z:
        for directory, names, files in os.walk(tree):
            for name in names + files:
                path = os.path.join(directory, name)
                if os.path.isfile(path) or os.path.isdir(path):
                    z.write(path, os.path.relpath(path, tree))
";

/// Packs a tree. Returns false if the program is not installed.
fn pack(program: &str, arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> bool {
    let Some(program) = require::program(program) else {
        return false;
    };
    let mut command = Command::new(program);
    command.args(arguments.iter().map(|argument| argument.as_ref()));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    true
}

fn read(archive: &Path) -> TreeModel {
    let source: Arc<dyn ReadAt> = Arc::new(FileSource::open(archive).unwrap());
    let zip = Zip::open(Arc::clone(&source), &Limits::default()).unwrap();
    check_filesystem(&zip, &Limits::default());
    assert_eq!(warnings(&zip), Vec::<String>::new());
    assert_eq!(problems(&zip), Vec::<String>::new());
    assert_eq!(zip.volume().image_len, source.len());
    TreeModel::of_image(&zip, &*source).unwrap()
}

#[test]
fn archives_of_bsdtar_read_as_their_trees() {
    for shape in [
        Shape::Empty,
        Shape::Mixed,
        Shape::Deep,
        Shape::LongNames,
        Shape::OddLengths,
        Shape::Symlinks,
    ] {
        let dir = temp_dir("zip");
        let (tree, archive) = (dir.path().join("tree"), dir.path().join("archive.zip"));
        fs::create_dir(&tree).unwrap();
        shape.populate(&tree);
        let expected = TreeModel::of_host(&tree).unwrap();
        for method in ["deflate", "store"] {
            let option = format!("zip:compression={method}");
            let arguments: [&dyn AsRef<std::ffi::OsStr>; 8] = [
                &"--format",
                &"zip",
                &"--options",
                &option,
                &"-cf",
                &archive,
                &"-C",
                &tree,
            ];
            let arguments = [&arguments[..], &[&"."]].concat();
            if !pack("bsdtar", &arguments) {
                return;
            }
            expected.assert_same(&read(&archive), &KEEPS);
        }
    }
}

#[test]
fn archives_of_zipfile_read_as_their_trees() {
    let dir = temp_dir("zip");
    let (tree, archive) = (dir.path().join("tree"), dir.path().join("archive.zip"));
    fs::create_dir(&tree).unwrap();
    Shape::OddLengths.populate(&tree);
    let expected = TreeModel::of_host(&tree).unwrap();
    for (method, prefix) in [("0", ""), ("8", ""), ("8", "#!/usr/bin/env python3\n")] {
        let arguments: [&dyn AsRef<std::ffi::OsStr>; 6] =
            [&"-c", &ZIPFILE, &tree, &archive, &method, &prefix];
        if !pack("python3", &arguments) {
            return;
        }
        let mut actual = read(&archive);
        // zipfile does not store the root, and its times are local, in steps of two seconds.
        let root = expected.nodes.get(&b""[..]).unwrap();
        actual.nodes.insert(Vec::new(), root.clone());
        let keeps = Keeps {
            times: false,
            owners: false,
            ..KEEPS
        };
        expected.assert_same(&actual, &keeps);
    }
}
