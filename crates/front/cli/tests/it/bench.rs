//! `forerun bench`: every workload has its runs, differing contents are reported, and nothing is left
//! behind.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use forerun_testkit::{eventually, require};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::volume::as_nobody;
use crate::common::{Fixture, Ran, command, ran};

struct Place(Fixture);

impl Place {
    fn new() -> Self {
        let place = Self(Fixture::tree());
        fs::create_dir(place.path("home")).unwrap();
        for format in ["squashfs", "erofs"] {
            let image = format!("a.{format}");
            let pack = ["pack", "-q", "--format", format, "tree", &image];
            place.0.run(&pack).ok();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let rounds: &[&str] = if args.contains(&"--rounds") {
            &[]
        } else {
            &["--rounds", "1"]
        };
        let all = [&["bench", "--directory", "home"][..], rounds, args].concat();
        self.0.command(&all)
    }

    fn bench(&self, args: &[&str]) -> Ran {
        let ran = ran(self.command(args).output().unwrap());
        self.assert_empty();
        ran
    }

    #[track_caller]
    fn assert_empty(&self) {
        let home = self.path("home").canonicalize().unwrap();
        let left: Vec<_> = fs::read_dir(&home).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(mounts_below(&home), Vec::<String>::new());
    }
}

fn mounts_below(home: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let home = format!(" {}/", home.display());
    let below = table.lines().filter(|line| line.contains(&home));
    below.map(str::to_string).collect()
}

fn names(array: &Value, key: &str) -> Vec<String> {
    let all = array.as_array().unwrap().iter();
    all.map(|value| value[key].as_str().unwrap().to_string())
        .collect()
}

fn contenders<'v>(report: &'v Value, work: &str) -> &'v Value {
    let mut works = report["works"].as_array().unwrap().iter();
    let found = works.find(|row| row["work"] == work);
    &found.unwrap_or_else(|| panic!("no {work} in {report:#}"))["contenders"]
}

/// Asserts that each of the contents was read by several contenders with the same result.
#[track_caller]
fn assert_same_contents(report: &Value, least: usize) {
    for (what, digests) in report["contents"].as_object().unwrap() {
        let readers = names(digests, "by");
        assert!(readers.len() >= least, "{what}: {readers:?}");
        let different: BTreeSet<String> = names(digests, "digest").into_iter().collect();
        assert_eq!(different.len(), 1, "{what}: {digests:#}");
    }
    assert_eq!(report["problems"], serde_json::json!([]));
}

const WORKS: [&str; 8] = [
    "start",
    "cat-cold",
    "cat-cached",
    "random",
    "ls",
    "tree",
    "tree-n",
    "extract",
];

#[test]
fn every_work_is_measured_and_all_read_the_same() {
    let programs = ["unsquashfs", "fsck.erofs"].map(require::program);
    if !require::root() || !require::fuse() || programs.contains(&None) {
        return;
    }
    let place = Place::new();
    for (image, format, extractor) in [
        ("a.squashfs", "squashfs", "unsquashfs"),
        ("a.erofs", "erofs", "fsck.erofs"),
    ] {
        if !require::kernel_filesystem(format) {
            continue;
        }
        let report = place.bench(&["--json", image]).ok().json();
        assert_eq!(report["format"], format);
        assert_eq!(report["cat"]["path"], "big");
        assert_eq!(names(&report["works"], "work"), WORKS);
        for work in WORKS {
            let by = names(contenders(&report, work), "contender");
            let peer = if work == "extract" {
                extractor
            } else {
                "kernel"
            };
            assert!(by.iter().any(|name| name == peer), "{work}: {by:?}");
            let ours = &contenders(&report, work)[0];
            assert_eq!(ours["contender"], "forerun");
            assert_eq!(ours["seconds"].as_array().unwrap().len(), 1);
            let requests = ours["counters"][0]["source_requests"].as_u64();
            assert!(requests > Some(0), "{work}: {ours:#}");
            let other = &contenders(&report, work)[1];
            assert!(other["counters"].is_null(), "{other:#}");
            assert_eq!(other["comparison"]["verdict"], "too_few_rounds");
        }
        assert_eq!(report["contents"].as_object().unwrap().len(), 3);
        assert_same_contents(&report, 2);
    }
}

#[test]
fn three_rounds_give_a_table_with_verdicts() {
    if !require::root() || !require::fuse() || !require::kernel_filesystem("squashfs") {
        return;
    }
    let place = Place::new();
    let args = ["--rounds", "3", "--only", "ls,cat-cold", "a.squashfs"];
    let shown = place.bench(&args).ok();
    let text = shown.text();
    for expected in [
        "largest file, for cat and random: /big, 2.9 MiB",
        "3 rounds; the pages of the image are dropped before each cold run",
        "All contenders read the same data.",
        "noise: load",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    // Rows follow the order of the workloads, not the order on the command line.
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("  kernel  "))
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(rows, ["cat-cold", "ls"]);
    let verdicts = text.lines().filter(|line| line.contains("  kernel  "));
    for verdict in verdicts {
        let is_decided = verdict.contains(" of the kernel's driver");
        assert!(is_decided || verdict.contains("undecided: "), "{verdict}");
    }
}

#[test]
fn a_program_that_writes_other_bytes_is_reported() {
    let place = Place::new();
    fs::create_dir(place.path("fake")).unwrap();
    let script = "#!/bin/sh\nwhile [ $# -gt 0 ]; do\n\
                  [ \"$1\" = -dest ] && mkdir \"$2\" && echo other > \"$2/big\"\nshift\ndone\n";
    let fake = place.path("fake/unsquashfs");
    fs::write(&fake, script).unwrap();
    fs::set_permissions(&fake, Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", place.path("fake").display());
    let args = ["--only", "extract", "--with", "unsquashfs"];
    for (option, expected) in [
        (
            &["--json"][..],
            "unsquashfs, extracted read a different tree than ",
        ),
        (
            &[],
            "PROBLEM: unsquashfs, extracted read a different tree than ",
        ),
    ] {
        let all = [&args[..], option, &["a.squashfs"]].concat();
        let shown = ran(place.command(&all).env("PATH", &path).output().unwrap());
        place.assert_empty();
        assert_eq!((shown.code, shown.stderr.as_str()), (Some(1), ""));
        assert!(shown.text().contains(expected), "{}", shown.text());
    }
}

#[test]
fn a_program_that_fails_is_reported_and_the_others_are_measured() {
    let place = Place::new();
    fs::create_dir(place.path("fake")).unwrap();
    let fake = place.path("fake/unsquashfs");
    fs::write(&fake, "#!/bin/sh\necho cannot read this >&2\nexit 3\n").unwrap();
    fs::set_permissions(&fake, Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", place.path("fake").display());
    let args = [
        "--json",
        "--only",
        "extract",
        "--with",
        "unsquashfs",
        "a.squashfs",
    ];
    let shown = ran(place.command(&args).env("PATH", &path).output().unwrap());
    place.assert_empty();
    assert_eq!(shown.code, Some(1));
    let report = shown.json();
    let rows = contenders(&report, "extract");
    assert_eq!(rows[0]["seconds"].as_array().unwrap().len(), 1);
    let failures = rows[1]["failures"].to_string();
    assert!(failures.contains("cannot read this"), "{failures}");
    assert!(
        report["problems"]
            .to_string()
            .contains("1 of 1 runs failed")
    );
}

#[test]
fn without_a_mount_the_library_is_measured() {
    let place = Place::new();
    let args = ["--json", "--without", "forerun,kernel", "a.squashfs"];
    let report = place.bench(&args).ok().json();
    let measured = ["start", "cat-cold", "random", "ls", "tree", "extract"];
    assert_eq!(names(&report["works"], "work"), measured);
    assert_eq!(names(&report["left_out"], "work"), ["cat-cached", "tree-n"]);
    for work in measured {
        let ours = &contenders(&report, work)[0];
        assert_eq!(ours["contender"], "library");
        let requests = ours["counters"][0]["source_requests"].as_u64();
        assert!(requests > Some(0), "{work}: {ours:#}");
    }
    assert_same_contents(&report, 1);
}

#[test]
fn an_image_within_a_file_is_found_by_all() {
    if !require::root() || !require::fuse() || !require::kernel_filesystem("squashfs") {
        return;
    }
    let place = Place::new();
    let mut bytes = vec![0; 8192];
    bytes.extend(fs::read(place.path("a.squashfs")).unwrap());
    fs::write(place.path("disk"), bytes).unwrap();
    let only = "cat-cold,extract";
    let args = ["--json", "--offset", "8192", "--only", only, "disk"];
    let report = place.bench(&args).ok().json();
    assert_eq!(report["offset"], 8192);
    assert_same_contents(&report, 2);
}

#[test]
fn a_user_without_privileges_measures_without_the_kernel() {
    if !require::root() || !require::fusermount() {
        return;
    }
    let place = Place::new();
    let open = || Permissions::from_mode(0o755);
    fs::set_permissions(place.0.dir.path(), open()).unwrap();
    fs::set_permissions(place.path("home"), Permissions::from_mode(0o777)).unwrap();
    let program = command(&["--version"]);
    let mut bench = as_nobody(program.get_program());
    bench.args(["bench", "--directory", "home", "--rounds", "1", "--json"]);
    bench.args(["--only", "cat-cold,tree", "a.squashfs"]);
    let output = bench.current_dir(place.0.dir.path()).output().unwrap();
    let report = ran(output).ok().json();
    place.assert_empty();
    assert_eq!(report["dropped_all_caches"], false);
    let missing = report["missing"].to_string();
    assert!(
        missing.contains("the kernel's driver needs root"),
        "{missing}"
    );
    assert_eq!(contenders(&report, "tree")[0]["contender"], "forerun");
    assert_same_contents(&report, 1);
}

#[test]
fn an_interrupt_leaves_no_mounts_and_no_files() {
    if !require::root() || !require::fuse() {
        return;
    }
    let place = Place::new();
    let home = place.path("home").canonicalize().unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        let args = ["--rounds", "1000", "--only", "tree,extract", "a.squashfs"];
        let mut bench = place.command(&args);
        let mut child = bench
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("something is mounted", || !mounts_below(&home).is_empty());
        kill_process(Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(signal.as_raw()));
        place.assert_empty();
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let place = Place::new();
    fs::write(place.path("text"), "no image").unwrap();
    for (args, code, expected) in [
        (&["-"][..], 2, "only files and devices can be measured"),
        (&["https://localhost/x"], 2, "forerun pull"),
        (&["text"], 3, "text: not an image of a known format"),
        (&["nowhere"], 4, "nowhere: "),
        (
            &["--with", "fuse", "a.squashfs"],
            2,
            "known: forerun, library, kernel",
        ),
        (&["--only", "dance", "a.squashfs"], 2, "cat-cold"),
        (
            &[
                "--with",
                "erofsfuse",
                "--without",
                "forerun,library",
                "a.squashfs",
            ],
            7,
            "erofsfuse cannot read squashfs",
        ),
    ] {
        let refused = place.bench(args);
        assert_eq!(refused.code, Some(code), "{args:?}: {}", refused.stderr);
        assert!(
            refused.stderr.contains(expected),
            "{args:?}: {}",
            refused.stderr
        );
    }
}
