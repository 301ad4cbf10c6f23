//! The Linux exfat driver in a guest: it reads an image of `forerun pack` and writes to it, and the
//! result is read back here. Its recorded writes show that traces of other drivers can be judged.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use forerun_io::FileSource;
use forerun_testkit::exfat_judge::{Class, judge};
use forerun_testkit::exfat_tools::assert_clean;
use forerun_testkit::guest::{self, Guest};
use forerun_testkit::powercut::{Bounds, Event, Snapshot, crashes, log_writes};
use forerun_testkit::tree::{Keeps, ModeKept, TreeModel};
use forerun_testkit::{Shape, TempDir, forerun_binary, temp_dir};

const OUT_LEN: u64 = 64 << 20;
/// The attributes that exFAT stores. Times are also compared by the guest's tar streams.
const EXFAT: Keeps = Keeps {
    modes: ModeKept::None,
    owners: false,
    times: true,
    hard_links: false,
    special: false,
};
/// Shell commands that the guest runs on the volume, and the host on a copy of the tree.
const CHANGES: &str = "
dd if=/dev/zero bs=1000 count=300 2>/dev/null | tr '\\0' 'w' > new
mkdir made; echo inside > made/file; mkdir made/below
cat new >> big
mv small made/moved; mv new renamed
rm gone; rm -r tree
";

fn make_tree(dir: &Path) -> PathBuf {
    let tree = dir.join("input");
    fs::create_dir(&tree).unwrap();
    Shape::Mixed.populate(&tree);
    remove_links(&tree);
    for (name, len) in [
        ("big", 1_000_001),
        ("small", 10),
        ("gone", 70_000),
        ("empty", 0),
    ] {
        let bytes: Vec<u8> = (0..len).map(|at: usize| (at % 241) as u8).collect();
        fs::write(tree.join(name), bytes).unwrap();
    }
    let below = tree.join("tree/of/directories");
    fs::create_dir_all(&below).unwrap();
    for number in 0..200 {
        fs::write(below.join(format!("{number} {}", "long ".repeat(9))), b"x").unwrap();
    }
    fs::write(below.join("n".repeat(255)), b"y").unwrap();
    fs::write(tree.join("\u{e4}\u{20ac}\u{1F600}"), b"not ASCII").unwrap();
    tree
}

/// Removes links, which exFAT does not have; other tests check that they are reported.
fn remove_links(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => remove_links(&entry.path()),
            kind if kind.is_file() => {}
            _ => fs::remove_file(entry.path()).unwrap(),
        }
    }
}

fn forerun(args: &[&str], paths: &[&Path]) -> Output {
    let output = Command::new(forerun_binary())
        .args(args)
        .args(paths)
        .output();
    let output = output.unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "forerun {args:?}: {complaint}");
    output
}

fn run(guest: &Guest, script: &str) -> bool {
    let Some(output) = guest.run(script) else {
        return false;
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}\n{complaint}");
    true
}

/// Creates a guest that mounts the volume at /mnt, so that names and times are those of the image.
fn guest(disk: &Path) -> Guest {
    let mut guest = Guest::new();
    guest.module("exfat").module("nls_utf8").disk(disk);
    guest
}

fn compare(what: &str, expected: &TreeModel, seen: &TreeModel, keeps: &Keeps) {
    // The root has no entry of its own, and so no time.
    let below = |tree: &TreeModel| {
        let mut tree = tree.clone();
        tree.nodes.retain(|path, _| !path.is_empty());
        tree
    };
    let differences = forerun_testkit::tree::diff(&below(expected), &below(seen), keeps);
    let shown: Vec<String> = differences
        .iter()
        .take(20)
        .map(ToString::to_string)
        .collect();
    assert!(shown.is_empty(), "{what}:\n{}", shown.join("\n"));
}

#[test]
fn linux_reads_what_forerun_packs_and_forerun_what_linux_wrote() {
    if !guest::available() {
        return;
    }
    let dir = temp_dir("guest-exfat");
    let tree = make_tree(dir.path());
    for cluster in ["512", "4K", "128K"] {
        let image = dir.path().join(format!("image-{cluster}"));
        let options = [
            "pack",
            "--format",
            "exfat",
            "--volume-size",
            "+8M",
            "--cluster-size",
            cluster,
        ];
        forerun(&options, &[&tree, &image]);
        let out = dir.path().join(format!("out-{cluster}"));
        let mut guest = guest(&image);
        guest.out(&out, OUT_LEN);
        let script = format!(
            "set -e\nmount -t exfat -o iocharset=utf8,time_offset=0 $DISK /mnt\ncd /mnt\n\
             tar cf $OUT .\n{CHANGES}\ncd /; umount /mnt\n"
        );
        assert!(run(&guest, &script));
        let seen = TreeModel::of_tar(File::open(&out).unwrap()).unwrap();
        let expected = TreeModel::of_host(&tree).unwrap();
        compare("Linux reads", &expected, &seen, &EXFAT);
        read_back(&dir, cluster, &image, &tree);
    }
}

/// Reads the volume that Linux has written: with the judge, with fsck.exfat and with the driver.
fn read_back(dir: &TempDir, cluster: &str, image: &Path, tree: &Path) {
    let source = FileSource::open(image).unwrap();
    let report = judge(&source).unwrap();
    assert!(report.clean(), "{cluster}: {:?}", report.findings);
    let moved = report.find("made/moved").unwrap();
    let small = fs::read(tree.join("small")).unwrap();
    assert_eq!(report.content(&source, moved, u64::MAX).unwrap(), small);
    assert_clean(image);
    forerun(&["check"], &[image]);
    let changed = dir.path().join(format!("changed-{cluster}"));
    let copied = Command::new("cp")
        .arg("-a")
        .arg(tree)
        .arg(&changed)
        .status();
    assert!(copied.unwrap().success());
    let script = format!("set -e\ncd \"$1\"\n{CHANGES}");
    let done = Command::new("sh")
        .args(["-c", &script, "sh"])
        .arg(&changed)
        .status();
    assert!(done.unwrap().success());
    let extracted = dir.path().join(format!("extracted-{cluster}"));
    forerun(&["extract", "-C"], &[&extracted, image]);
    let keeps = Keeps {
        times: false,
        ..EXFAT
    };
    let expected = TreeModel::of_host(&changed).unwrap();
    let seen = TreeModel::of_host(&extracted).unwrap();
    compare("what Linux wrote", &expected, &seen, &keeps);
}

/// Applies the log of a virtual machine to the initial volume, and compares the result with the
/// final volume. Also judges the states that a power cut may leave: the Linux driver writes entry
/// by entry.
#[test]
fn writes_of_linux_are_recorded_and_judged() {
    if !guest::available() {
        return;
    }
    let dir = temp_dir("guest-log");
    let tree = dir.path().join("input");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), b"there before").unwrap();
    let image = dir.path().join("image");
    let options = [
        "pack",
        "--format",
        "exfat",
        "--volume-size",
        "4M",
        "--cluster-size",
        "4K",
    ];
    forerun(&options, &[&tree, &image]);
    let start = Snapshot::new(fs::read(&image).unwrap());
    let log = dir.path().join("log");
    let mut guest = guest(&image);
    guest.log_writes(&log);
    let script = "set -e\nmount -t exfat -o dirsync $DISK /mnt\nmkdir /mnt/dir\n\
                  dd if=/dev/zero bs=64k count=4 2>/dev/null | tr '\\0' 'x' > /mnt/dir/file\nsync\n\
                  mv /mnt/dir/file /mnt/dir/moved\nrm /mnt/dir/moved\numount /mnt\n";
    assert!(run(&guest, script));
    let trace = log_writes::read(&mut File::open(&log).unwrap()).unwrap();
    let mut last = start.bytes();
    for event in &trace {
        if let Event::Write { offset, data, .. } = event {
            let at = *offset as usize;
            last[at..at + data.len()].copy_from_slice(data);
        }
    }
    assert!(
        last == fs::read(&image).unwrap(),
        "the log leads to another volume"
    );
    let (mut states, mut bad, mut leaks) = (0, 0, 0);
    crashes(&start, &trace, &Bounds::default(), &mut |crash| {
        states += 1;
        match judge(&crash.state) {
            Ok(report) if report.after_crash().is_ok() => {
                leaks += u32::from(report.of(Class::Leak).next().is_some());
            }
            _ => bad += 1,
        }
    });
    println!(
        "{} writes and flushes; {states} states, {bad} in need of repair, {leaks} with lost clusters",
        trace.len()
    );
    assert!(states > 40 && bad > 0, "{states} states, {bad} bad");
}
