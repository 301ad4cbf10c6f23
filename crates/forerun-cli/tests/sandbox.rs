//! What a process can still do once it reads an image.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::Ran;
use forerun_testkit::{TempDir, require, temp_dir};

/// Has the program try what the sandbox refuses; see `src/confine/probe.rs`.
const PROBE: &str = "FORERUN_SANDBOX_PROBE";
const REFUSED: &str = "\
probe: shadow: refused
probe: exec: refused
probe: ptrace: refused
probe: sockets: refused
";

/// A directory with an image of each kind that a command of the tests takes.
struct Fixture(TempDir);

impl Fixture {
    fn new() -> Self {
        let fixture = Self(temp_dir("sandbox"));
        fs::create_dir_all(fixture.path("tree/sub")).unwrap();
        fs::write(fixture.path("tree/big"), common::big()).unwrap();
        fs::write(fixture.path("tree/sub/file"), "text").unwrap();
        for (format, name) in [
            ("squashfs", "a.sqsh"),
            ("erofs", "b.erofs"),
            ("exfat", "c.exfat"),
        ] {
            fixture
                .run(&["pack", "--format", format, "tree", name])
                .ok();
        }
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = common::command(args);
        command.current_dir(self.0.path());
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        common::ran(self.command(args).output().unwrap())
    }
}

fn probed(fixture: &Fixture, args: &[&str]) -> Ran {
    common::ran(fixture.command(args).env(PROBE, "1").output().unwrap())
}

/// Every command that parses an image, with its arguments.
const COMMANDS: &[&[&str]] = &[
    &["info", "a.sqsh"],
    &["ls", "-lR", "a.sqsh"],
    &["ls", "-lR", "b.erofs"],
    &["ls", "-lR", "c.exfat"],
    &["cat", "a.sqsh", "/big"],
    &["dump", "a.sqsh"],
    &["check", "a.sqsh"],
    &["check", "c.exfat"],
    &["check", "-q", "--repair", "--yes", "c.exfat"],
    &["check", "--repair", "--dry-run", "c.exfat"],
    &["label", "c.exfat"],
    &["label", "c.exfat", "NEW"],
    &["diff", "a.sqsh", "b.erofs"],
    &["diff", "a.sqsh", "tree"],
    &["tar", "-o", "a.tar", "a.sqsh"],
    &["tar", "a.sqsh"],
    &["extract", "-C", "out/made", "a.sqsh"],
    &["extract", "-O", "a.sqsh"],
    &["convert", "--format", "erofs", "a.sqsh", "new.erofs"],
    &["convert", "--format", "squashfs", "b.erofs", "-"],
    &[
        "convert",
        "--format",
        "composefs",
        "--objects",
        "store",
        "a.sqsh",
        "new.cfs",
    ],
    &["ls", "-R", "--objects", "store", "new.cfs"],
    &["gc", "--objects", "store", "new.cfs"],
    &["pack", "--format", "romfs", "a.tar", "new.romfs"],
    &["pack", "--format", "squashfs", "tree", "new.sqsh"],
];

#[cfg(debug_assertions)]
#[test]
fn commands_that_read_images_can_do_nothing_else() {
    let fixture = Fixture::new();
    for args in COMMANDS {
        let ran = probed(&fixture, args);
        let rest = ran.stderr.strip_prefix(REFUSED);
        assert!(rest.is_some(), "{args:?}: {}", ran.stderr);
        assert!(
            ran.code.is_some_and(|code| code <= 1),
            "{args:?}: {}",
            ran.stderr
        );
    }
}

/// Without the sandbox, the operations that the test above tries are possible.
#[cfg(debug_assertions)]
#[test]
fn no_sandbox_refuses_nothing() {
    if !require::root() {
        return;
    }
    let fixture = Fixture::new();
    let ran = probed(&fixture, &["--no-sandbox", "info", "-v", "a.sqsh"]);
    let allowed = REFUSED.replace("refused", "allowed");
    assert!(ran.stderr.starts_with(&allowed), "{}", ran.stderr);
    let shown = ran.text().lines().find(|line| line.starts_with("sandbox"));
    assert!(shown.unwrap().ends_with("off (--no-sandbox)"));
}

#[cfg(not(debug_assertions))]
#[test]
fn release_builds_have_no_probe() {
    for args in COMMANDS.iter().take(1) {
        assert_eq!(probed(&Fixture::new(), args).stderr, "");
    }
}

#[test]
fn info_shows_what_is_in_force() {
    let fixture = Fixture::new();
    let plain = fixture.run(&["info", "a.sqsh"]).ok();
    assert!(!plain.text().contains("sandbox"));
    let ran = fixture.run(&["--json", "info", "-v", "a.sqsh"]);
    let sandbox = &ran.json()["sandbox"];
    for name in [
        "no_new_privs",
        "core_dumps",
        "landlock",
        "capabilities",
        "seccomp",
    ] {
        assert_eq!(sandbox[name]["state"], "on", "{sandbox}");
    }
    assert_eq!(sandbox["capabilities"]["detail"], "none");
    let off = fixture.run(&["--json", "--no-sandbox", "info", "-v", "a.sqsh"]);
    assert!(off.json()["sandbox"].is_null());
}

/// What `/proc` says of each thread of a process.
fn statuses(pid: u32) -> Vec<String> {
    let threads = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task")).unwrap();
    let status = |thread: std::io::Result<fs::DirEntry>| thread.unwrap().path().join("status");
    let status = threads.map(|thread| fs::read_to_string(status(thread)).unwrap());
    status.collect()
}

#[track_caller]
fn assert_confined(pid: u32, capabilities: u64) {
    let statuses = statuses(pid);
    assert!(!statuses.is_empty());
    for status in statuses {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim_start_matches(':').trim().to_string()
        };
        assert_eq!(field("NoNewPrivs"), "1", "{status}");
        assert_eq!(field("Seccomp"), "2", "{status}");
        let effective = u64::from_str_radix(&field("CapEff"), 16).unwrap();
        assert_eq!(effective & !capabilities, 0, "{status}");
    }
}

/// The process waits for its output to be read, in the midst of its work.
#[test]
fn all_threads_of_a_reader_are_confined() {
    let fixture = Fixture::new();
    for args in [&["cat", "a.sqsh", "/big"][..], &["tar", "a.sqsh"]] {
        let mut command = fixture.command(args);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut [0]).unwrap();
        assert_confined(child.id(), 0);
        std::io::copy(&mut output, &mut std::io::sink()).unwrap();
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_failed_extraction_leaves_no_directory_behind() {
    let fixture = Fixture::new();
    let ran = fixture.run(&["extract", "-C", "out/made", "a.sqsh", "/no/such"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(!fixture.path("out").exists());
    fs::write(
        fixture.path("text"),
        "not an image, and longer than a boot sector",
    )
    .unwrap();
    let ran = fixture.run(&["extract", "-C", "out/made", "text"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(!fixture.path("out").exists());
}
