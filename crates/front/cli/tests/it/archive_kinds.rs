//! Archives of every kind that programs write, beside GNU tar and bsdtar.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use forerun::vfs::{FileType, Timestamp};
use forerun_testkit::{Keeps, TreeModel, require, temp_dir};

use crate::common::command;

/// Kinds that only one of the programs reads as the specifications have it.
const ONE: [(&str, &str); 5] = [
    // The name of `L` wins.
    ("long-names-and-records", "tar"),
    // A fraction before the epoch is cut.
    ("negative-time", "tar"),
    ("records-of-no-file", "tar"),
    ("repeated-records", "tar"),
    // Blanks are an error.
    ("empty-numbers", "bsdtar"),
];

/// Runs a program that unpacks into a new directory. Returns the tree, and whether all of it was unpacked.
fn unpacked(dir: &Path, command: &mut Command) -> (TreeModel, bool) {
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let start = i64::try_from(start.as_secs()).unwrap() - 1;
    fs::create_dir(dir).unwrap();
    let output = command.current_dir(dir).output().unwrap();
    let mut tree = TreeModel::of_host(dir).unwrap();
    // No archive has it.
    tree.nodes.remove(&Vec::new());
    // Directories that only the paths of other members name: tar and bsdtar set no time, forerun 1970.
    let directories = tree
        .nodes
        .values_mut()
        .filter(|node| node.kind == FileType::Directory);
    for node in directories.filter(|node| node.mtime.seconds > start) {
        node.mtime = Timestamp::default();
    }
    (tree, output.status.success())
}

#[test]
fn archives_of_every_kind_are_read_as_by_tar_and_bsdtar() {
    let programs = ["python3", "tar", "bsdtar"].map(require::program);
    let [Some(python), Some(tar), Some(bsdtar)] = programs else {
        return;
    };
    let dir = temp_dir("kinds");
    let kinds = dir.path().join("kinds");
    let mut made = Command::new(python);
    made.args(["-c", include_str!("../images/archives.py")]);
    assert!(made.arg(&kinds).status().unwrap().success());
    let mut count = 0;
    for kind in fs::read_dir(&kinds).unwrap() {
        let archive = kind.unwrap().path();
        let kind = archive.file_name().unwrap().to_string_lossy().into_owned();
        let at = |name: &str| dir.path().join(format!("{kind}.{name}"));
        let image = at("erofs");
        let path = archive.to_str().unwrap();
        let mut trees = Vec::new();
        for (name, pack) in [("packed", "pack"), ("converted", "convert")] {
            let args = [
                "--format",
                "erofs",
                "--force",
                path,
                image.to_str().unwrap(),
            ];
            // Zeros alone may be anything: they are an archive where one is asked for.
            let from: &[&str] = match (pack, kind.as_str()) {
                ("convert", "nothing") => &["--from", "tar"],
                _ => &[],
            };
            let made = command(&[&[pack, "-q"][..], from, &args].concat()).output();
            let made = made.unwrap().status;
            assert!(matches!(made.code(), Some(0 | 6)), "{kind}: {pack}: {made}");
            let mut extract = command(&["extract", "-q", "--keep", "all", "-C", "."]);
            let (tree, _) = unpacked(&at(name), extract.arg(&image));
            trees.push((tree, made.success()));
        }
        let mut extract = command(&["extract", "-q", "--keep", "all", "--format", "tar"]);
        let (tree, whole) = unpacked(&at("extracted"), extract.args(["-C", ".", path]));
        for (other, other_whole) in trees {
            tree.assert_same(&other, &Keeps::EVERYTHING);
            assert_eq!(whole, other_whole, "{kind}");
        }
        for (name, program) in [("tar", &tar), ("bsdtar", &bsdtar)] {
            let only = ONE.iter().find(|(one, _)| *one == kind);
            if only.is_some_and(|(_, program)| *program != name) {
                continue;
            }
            let mut unpack = Command::new(program);
            unpack.args(["--numeric-owner", "-xpf", path]);
            let (expected, expected_whole) = unpacked(&at(name), &mut unpack);
            println!("{kind} by {name}");
            expected.assert_same(&tree, &Keeps::EVERYTHING);
            assert_eq!(whole, expected_whole, "{kind}: {name}");
            count += 1;
        }
    }
    assert_eq!(count, 2 * 39 - ONE.len());
}
