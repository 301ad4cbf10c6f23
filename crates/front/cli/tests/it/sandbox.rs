//! What a process can still do once it reads an image.

use std::fs::{self, Permissions};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use forerun_testkit::{TempDir, eventually, require, temp_dir};
use forerun_testkit_servers::Nginx;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{self, Ran};

/// Makes the program try what the sandbox refuses; see `src/confine/probe.rs`.
const PROBE: &str = "FORERUN_SANDBOX_PROBE";
const REFUSED: &str = "\
probe: shadow: refused
probe: exec: refused
probe: ptrace: refused
probe: sockets: refused
";

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
                .run(&["pack", "-q", "--format", format, "tree", name])
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
    &["scan", "a.sqsh"],
    &["scan", "--json", "c.exfat"],
    &["info", "a.sqsh"],
    &["ls", "-lR", "a.sqsh"],
    &["ls", "-lR", "b.erofs"],
    &["ls", "-lR", "c.exfat"],
    &["cat", "a.sqsh", "/big"],
    &["dump", "a.sqsh"],
    &["map", "a.sqsh"],
    &["map", "--html", "a.html", "c.exfat"],
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
    &["extract", "--sync", "-C", "out/made", "a.sqsh"],
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
    &["__bench", "survey", "a.sqsh"],
    &["__bench", "library", "--work", "tree-digest", "b.erofs"],
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

/// Without the sandbox, everything that the test above tries is allowed.
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

/// Inspects the process while it is blocked on its output.
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
fn root_writes_into_directories_of_other_users() {
    if !require::root() {
        return;
    }
    let fixture = Fixture::new();
    for name in ["theirs", "theirs/store", "theirs/out"] {
        fs::create_dir(fixture.path(name)).unwrap();
        std::os::unix::fs::chown(fixture.path(name), Some(65534), Some(65534)).unwrap();
        fs::set_permissions(fixture.path(name), Permissions::from_mode(0o700)).unwrap();
    }
    for args in [
        &["tar", "-o", "theirs/a.tar", "a.sqsh"][..],
        &["tar", "--force", "-o", "theirs/a.tar", "a.sqsh"],
        &["convert", "--format", "erofs", "a.sqsh", "theirs/b"],
        &[
            "-q",
            "convert",
            "--format",
            "composefs",
            "--objects",
            "theirs/store",
            "a.sqsh",
            "theirs/c",
        ],
        &["cat", "--objects", "theirs/store", "theirs/c", "/sub/file"],
        &[
            "pack",
            "-q",
            "--format",
            "romfs",
            "theirs/a.tar",
            "theirs/d",
        ],
        &["-q", "extract", "-C", "theirs/out/made", "theirs/b"],
        &["-q", "gc", "--objects", "theirs/store", "theirs/c"],
        &["diff", "--ignore", "mtime", "theirs/b", "theirs/out/made"],
    ] {
        fixture.run(args).ok();
    }
}

struct Mounted<'f> {
    fixture: &'f Fixture,
    said: Ran,
}

impl<'f> Mounted<'f> {
    fn new(fixture: &'f Fixture, image: &str, before: &[&str]) -> Self {
        fs::create_dir_all(fixture.path("mnt")).unwrap();
        fs::create_dir_all(fixture.path("run")).unwrap();
        for dir in [".", "mnt", "run"] {
            fs::set_permissions(fixture.path(dir), Permissions::from_mode(0o777)).unwrap();
        }
        let mount = fixture.command(&["mount", image, "mnt"]);
        let mut command = Command::new("env");
        command.args(before).arg(mount.get_program());
        command.args(mount.get_args()).current_dir(fixture.0.path());
        command.env("XDG_RUNTIME_DIR", fixture.path("run"));
        let said = common::ran(command.env(PROBE, "1").output().unwrap());
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        Self { fixture, said }
    }

    fn status(&self) -> Value {
        let mut command = self.fixture.command(&["status", "--json"]);
        command.env("XDG_RUNTIME_DIR", self.fixture.path("run"));
        common::ran(command.output().unwrap()).mounts()[0].clone()
    }

    fn pid(&self) -> u32 {
        u32::try_from(self.status()["pid"].as_u64().unwrap()).unwrap()
    }

    /// Checks that the serving process is confined, and that the image can be read.
    #[track_caller]
    fn assert_confined(&self) {
        assert_eq!(
            fs::read(self.fixture.path("mnt/big")).unwrap(),
            common::big()
        );
        assert_confined(self.pid(), 0);
        for (name, measure) in self.status()["sandbox"].as_object().unwrap() {
            assert_eq!(measure["state"], "on", "{name}: {measure}");
        }
    }

    /// Ends the server by SIGTERM. It unmounts through its helper process.
    fn end_by_signal(&self) {
        let pid = i32::try_from(self.pid())
            .ok()
            .and_then(Pid::from_raw)
            .unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        eventually("the mount is gone", || {
            !self.fixture.path("mnt/big").exists()
                && rustix::process::test_kill_process(pid).is_err()
        });
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _if_it_is_mounted = self.fixture.run(&["umount", "-l", "mnt"]);
    }
}

/// Asserts that the probe was refused everything. Release builds have no probe.
#[track_caller]
fn assert_refused(said: &str) {
    assert_eq!(said, if cfg!(debug_assertions) { REFUSED } else { "" });
}

#[test]
fn a_mount_is_served_in_the_sandbox() {
    if !require::root() || !require::fuse() {
        return;
    }
    let fixture = Fixture::new();
    for image in ["a.sqsh", "b.erofs", "c.exfat"] {
        let mounted = Mounted::new(&fixture, image, &[]);
        assert_refused(&mounted.said.stderr);
        mounted.assert_confined();
        mounted.end_by_signal();
    }
}

#[test]
fn a_mount_without_root_is_served_in_the_sandbox() {
    if !require::root() || !require::fuse() || require::program("fusermount3").is_none() {
        return;
    }
    let fixture = Fixture::new();
    let nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--",
    ];
    // A server makes its socket only in a directory of its own user.
    fs::create_dir(fixture.path("run")).unwrap();
    std::os::unix::fs::chown(fixture.path("run"), Some(65534), Some(65534)).unwrap();
    let mounted = Mounted::new(&fixture, "a.sqsh", &nobody);
    assert_refused(&mounted.said.stderr);
    let status = |pid: u32| fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let pid = {
        let processes = fs::read_dir(fixture.path("run/forerun")).unwrap();
        let socket = processes
            .map(|entry| entry.unwrap().file_name())
            .next()
            .unwrap();
        let name = socket
            .to_str()
            .unwrap()
            .split('-')
            .next()
            .unwrap()
            .to_string();
        name.parse::<u32>().unwrap()
    };
    assert!(status(pid).contains("NoNewPrivs:\t1"));
    assert_confined(pid, 0);
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    kill_process(process, Signal::TERM).unwrap();
    eventually("the mount is gone", || {
        rustix::process::test_kill_process(process).is_err()
    });
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(fixture.path("mnt").to_str().unwrap()));
}

#[test]
fn a_successor_is_confined_and_a_name_that_changes_case_is_renamed() {
    if !require::root() || !require::fuse() {
        return;
    }
    let fixture = Fixture::new();
    // The confined server has no right to read this directory.
    let theirs = fixture.path("theirs");
    fs::create_dir(&theirs).unwrap();
    std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).unwrap();
    fs::set_permissions(&theirs, Permissions::from_mode(0o700)).unwrap();
    let volume = "theirs/free.exfat";
    let words = [
        "pack",
        "-q",
        "--format",
        "exfat",
        "--volume-size",
        "+4M",
        "tree",
    ];
    fixture.run(&[&words[..], &[volume]].concat()).ok();
    for image in ["a.sqsh", volume] {
        let mounted = Mounted::new(&fixture, image, &[]);
        let first = mounted.pid();
        let mut restart = fixture.command(&["restart", "mnt"]);
        restart.env("XDG_RUNTIME_DIR", fixture.path("run"));
        let restarted = common::ran(restart.output().unwrap());
        assert_eq!(restarted.code, Some(0), "{}", restarted.stderr);
        assert_ne!(mounted.pid(), first);
        mounted.assert_confined();
        if image == volume {
            // Recognising such a rename requires inspecting the requesting thread, which only a
            // tracer may do.
            fs::rename(fixture.path("mnt/sub/file"), fixture.path("mnt/sub/FILE")).unwrap();
            let names = fs::read_dir(fixture.path("mnt/sub")).unwrap();
            let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(names, ["FILE"]);
        }
        mounted.end_by_signal();
    }
}

#[test]
fn the_process_outside_ends_with_its_server() {
    if !require::root() || !require::fuse() {
        return;
    }
    let fixture = Fixture::new();
    let mounted = Mounted::new(&fixture, "a.sqsh", &[]);
    let server = mounted.pid();
    let children = format!("/proc/{server}/task/{server}/children");
    let outside: i32 = fs::read_to_string(children)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let (server, outside) = (
        i32::try_from(server).unwrap(),
        Pid::from_raw(outside).unwrap(),
    );
    kill_process(Pid::from_raw(server).unwrap(), Signal::KILL).unwrap();
    eventually("the process outside has ended", || {
        rustix::process::test_kill_process(outside).is_err()
    });
}

/// Starts the helper process without its server. The helper may fail before the mount begins.
#[test]
fn a_process_outside_without_its_server_mounts_nothing() {
    if !require::root() || !require::fuse() {
        return;
    }
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("mnt")).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(ours);
    let mut outside = Command::new(fixture.command(&[]).get_program());
    outside
        .arg0("forerun: mounts for a server")
        .args(["__mount-for", "", "--", "forerun", "mount", "a.sqsh", "mnt"])
        .current_dir(fixture.0.path());
    let ended = outside.stdin(Stdio::from(OwnedFd::from(theirs))).status();
    assert!(ended.unwrap().success());
    assert!(!fixture.path("mnt/big").exists());
}

#[test]
fn an_image_at_a_server_leaves_sockets_and_nothing_else() {
    let fixture = Fixture::new();
    let Some(server) = Nginx::serve(fixture.0.path()) else {
        return;
    };
    let url = server.url_of("a.sqsh");
    let mut listed = fixture.command(&["ls", "-R", &url]);
    listed.env("XDG_CACHE_HOME", fixture.path("cache"));
    let listed = common::ran(listed.env(PROBE, "1").output().unwrap());
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    if cfg!(debug_assertions) {
        let expected = REFUSED.replace("sockets: refused", "sockets: allowed");
        assert_eq!(listed.stderr, expected);
    }
    assert!(listed.text().contains("file"));
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
