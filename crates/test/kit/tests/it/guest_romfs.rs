//! The Linux romfs driver as the oracle: in a guest, it mounts images of genromfs and `forerun
//! pack`, and must see the original tree.
//!
//! Each test boots once, mounts all its images and writes them as one tar stream to a disk. Kinds,
//! names, contents, targets, device numbers and executable bits are compared with the host's.
//! Properties that tar cannot carry (sockets, and hard links, because the driver reports a link
//! count of 1) are listed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use forerun_romfs::RomfsOptions;
use forerun_testkit::guest::{self, Guest};
use forerun_testkit::matrix::{Table, assert_varied};
use forerun_testkit::tree::{Keeps, TreeModel};
use forerun_testkit::{Shape, TempDir, forerun_binary, generate, genromfs, require, temp_dir};

/// Longest name that the Linux driver reads; it truncates longer ones (ROMFS_MAXFN of its header,
/// minus one).
const LINUX_NAME_MAX: usize = 127;
const OUT_LEN: u64 = 256 << 20;

/// A tree on the host, an image of it, and the image's path in the guest.
struct Case {
    name: String,
    tree: PathBuf,
    image: PathBuf,
}

fn trees(dir: &Path) -> Vec<(&'static str, PathBuf)> {
    let shapes = [
        Shape::Empty,
        Shape::Mixed,
        Shape::Deep,
        Shape::HardLinks,
        Shape::Devices,
        Shape::LongNames,
        Shape::OddLengths,
        Shape::Symlinks,
    ];
    let mut trees = Vec::new();
    for shape in shapes {
        if shape.needs_root() && !require::root() {
            continue;
        }
        let tree = dir.join(shape.name());
        fs::create_dir(&tree).unwrap();
        shape.populate(&tree);
        trees.push((shape.name(), tree));
    }
    shorten_names(&dir.join(Shape::LongNames.name()));
    let many = dir.join("many");
    fs::create_dir(&many).unwrap();
    // A lookup of the Linux driver reads a directory from its start: 10,000 files would take
    // minutes in an emulated guest.
    generate::many_files(&many, 1000).unwrap();
    trees.push(("many", many));
    let big = dir.join("big");
    fs::create_dir(&big).unwrap();
    generate::big_file(&big.join("file"), 10_000_001).unwrap();
    trees.push(("big", big));
    trees
}

fn shorten_names(tree: &Path) {
    for entry in fs::read_dir(tree).unwrap() {
        let entry = entry.unwrap();
        let too_long = entry.file_name().len() > LINUX_NAME_MAX;
        if entry.file_type().unwrap().is_dir() {
            shorten_names(&entry.path());
            if too_long {
                fs::remove_dir_all(entry.path()).unwrap();
            }
        } else if too_long {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

fn script(cases: &[Case], devices: &[String]) -> String {
    let mut script = String::from("set -e\n");
    for (case, device) in cases.iter().zip(devices) {
        let name = &case.name;
        writeln!(
            script,
            "mkdir /mnt/{name}; mount -t romfs -o ro {device} /mnt/{name}"
        )
        .unwrap();
        writeln!(
            script,
            "cd /mnt/{name}; find . -type s -exec echo SOCKET {name} {{}} \\;"
        )
        .unwrap();
        if name.starts_with(Shape::HardLinks.name()) {
            let stat = format!("stat -c 'INODE {name} %i %n'");
            writeln!(script, "find . ! -type d -exec {stat} {{}} \\;").unwrap();
        }
    }
    script.push_str("cd /mnt; tar cf $OUT .\n");
    script
}

fn check(cases: &[Case], dir: &Path) {
    let out = dir.join("out");
    let mut guest = Guest::new();
    guest.module("romfs").out(&out, OUT_LEN);
    let devices: Vec<String> = cases.iter().map(|case| guest.attach(&case.image)).collect();
    let Some(output) = guest.run(&script(cases, &devices)) else {
        return;
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{printed}\n{complaint}",
        output.status
    );
    let seen = TreeModel::of_tar(File::open(&out).unwrap()).unwrap();
    for case in cases {
        let expected = TreeModel::of_host(&case.tree).unwrap();
        let seen = seen.below(&case.name);
        let differences = forerun_testkit::tree::diff(
            &without_sockets(&expected),
            &seen,
            &Keeps::ROMFS.without_hard_links(),
        );
        let shown: Vec<String> = differences
            .iter()
            .take(20)
            .map(ToString::to_string)
            .collect();
        assert!(
            shown.is_empty(),
            "{}: Linux sees\n{}",
            case.name,
            shown.join("\n")
        );
        check_sockets(&case.name, &expected, &printed);
        if case.name.starts_with(Shape::HardLinks.name()) {
            check_links(&case.name, &expected, &printed);
        }
    }
}

fn without_sockets(tree: &TreeModel) -> TreeModel {
    let mut tree = tree.clone();
    tree.nodes
        .retain(|_, node| node.kind != forerun_vfs::FileType::Socket);
    tree
}

fn check_sockets(name: &str, expected: &TreeModel, printed: &str) {
    let sockets = expected
        .nodes
        .iter()
        .filter(|(_, node)| node.kind == forerun_vfs::FileType::Socket)
        .map(|(path, _)| String::from_utf8_lossy(path).into_owned());
    let start = format!("SOCKET {name} ./");
    let listed = printed.lines().filter_map(|line| line.strip_prefix(&start));
    assert_eq!(
        listed.map(str::to_string).collect::<Vec<_>>(),
        sockets.collect::<Vec<_>>(),
        "{name}: sockets"
    );
}

/// Checks that exactly the names of one node have the same inode number.
fn check_links(name: &str, expected: &TreeModel, printed: &str) {
    let start = format!("INODE {name} ");
    let inodes: BTreeMap<&str, &str> = printed
        .lines()
        .filter_map(|line| line.strip_prefix(&start)?.split_once(" ./"))
        .map(|(inode, path)| (path, inode))
        .collect();
    let mut groups: BTreeMap<&str, String> = BTreeMap::new();
    for (path, node) in &expected.nodes {
        if node.kind == forerun_vfs::FileType::Directory {
            continue;
        }
        let path = String::from_utf8_lossy(path).into_owned();
        let first = node.linked_to.as_deref().map(String::from_utf8_lossy);
        let group = first.map_or(path.clone(), std::borrow::Cow::into_owned);
        let inode = inodes.get(path.as_str());
        let inode = inode.unwrap_or_else(|| panic!("{name}: {path} was not listed"));
        let other = groups.entry(inode).or_insert_with(|| group.clone());
        assert_eq!(*other, group, "{name}: {path} has inode {inode}");
    }
    let expected_groups = expected
        .nodes
        .iter()
        .filter(|(path, node)| {
            node.kind != forerun_vfs::FileType::Directory
                && node.linked_to.as_ref().is_none_or(|first| first == *path)
        })
        .count();
    assert_eq!(groups.len(), expected_groups, "{name}: number of inodes");
}

fn case(dir: &TempDir, tree: &Path, name: String) -> Case {
    Case {
        image: dir.path().join(format!("{name}.romfs")),
        tree: tree.to_path_buf(),
        name,
    }
}

#[test]
fn linux_reads_what_genromfs_makes() {
    if !guest::available() {
        return;
    }
    let dir = temp_dir("guest-genromfs");
    let mut cases = Vec::new();
    for (shape, tree) in trees(dir.path()) {
        for align in ["16", "4096"] {
            let case = case(&dir, &tree, format!("{shape}-{align}"));
            if !genromfs(&case.tree, &case.image, &["-a", align, "-V", &case.name]) {
                return;
            }
            cases.push(case);
        }
    }
    check(&cases, dir.path());
}

/// Returns two sets of options per tree. Together they have every alignment, and volume names of
/// each length around those that move the root.
fn rows(trees: usize) -> Vec<RomfsOptions> {
    let aligns = (4..=16).map(|log| 1 << log).cycle();
    let names = [0, 1, 14, 15, 16, 17, 126, 127].map(|len| vec![b'n'; len]);
    let names = names.into_iter().cycle();
    let rows = aligns
        .zip(names)
        .map(|(align, volume_name)| RomfsOptions { volume_name, align });
    let rows: Vec<_> = rows.take(2 * trees).collect();
    let table = Table {
        format: "romfs",
        whole: &["volume_name"],
        fixed: &[],
    };
    assert_varied(table, &rows);
    rows
}

#[test]
fn linux_reads_what_forerun_packs() {
    if !guest::available() {
        return;
    }
    let dir = temp_dir("guest-pack");
    let mut cases = Vec::new();
    let trees = trees(dir.path());
    assert!(2 * trees.len() >= 13, "an alignment is left out");
    for (options, number) in rows(trees.len()).iter().zip(0..) {
        // A new option fails to compile until it is passed on.
        let RomfsOptions { volume_name, align } = options;
        let (shape, tree) = &trees[number / 2];
        let case = case(&dir, tree, format!("{shape}-{number}"));
        let output = Command::new(forerun_binary())
            .args(["pack", "--format", "romfs", "--align", &align.to_string()])
            .arg("--label")
            .arg(String::from_utf8_lossy(volume_name).as_ref())
            .arg(&case.tree)
            .arg(&case.image)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "forerun pack of {}: {}",
            case.name,
            String::from_utf8_lossy(&output.stderr)
        );
        cases.push(case);
    }
    check(&cases, dir.path());
}
