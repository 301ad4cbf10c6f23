//! Runs the program as a user does, on images made by genromfs.

pub mod browser;
pub mod place;
pub mod volume;
pub mod watched;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use forerun_testkit::{TempDir, genromfs, temp_dir};
use serde_json::Value;

/// Length of the large file of [`Fixture`].
pub const BIG: usize = 3_000_000;

#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ran {
    /// Returns the `--stats --json` output for each remote image.
    pub fn remotes(&self) -> Vec<Value> {
        let remotes = self.stderr.lines().filter_map(|line| {
            let value: Value = serde_json::from_str(line).ok()?;
            value.get("remote").cloned()
        });
        remotes.collect()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("UTF-8 on standard output")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.stdout)))
    }

    /// Returns the mounts in the answer of `status --json` that are not dead. Other tests run at
    /// the same time and may have dead mounts.
    pub fn mounts(&self) -> Value {
        let mut mounts = self.json();
        mounts
            .as_array_mut()
            .unwrap()
            .retain(|mount| mount["dead"] != true);
        mounts
    }

    /// Asserts that the command succeeded without a message.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""));
        self
    }

    /// Asserts that the command failed with `code` and exactly these lines on standard error.
    #[track_caller]
    pub fn fails(&self, code: i32, stderr: &str) {
        assert_eq!((self.code, self.stderr.trim_end()), (Some(code), stderr));
    }
}

/// Returns a command line of the program under test, in the C locale and UTC, with empty standard
/// input.
pub fn command(args: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command
        .args(args)
        .env("TZ", "UTC")
        .env_remove("SOURCE_DATE_EPOCH")
        .stdin(Stdio::null());
    command
}

/// Returns the result without the summary line of pack and convert, because that contains a time.
pub fn ran(output: Output) -> Ran {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let is_summary = |line: &&str| line.contains(" in, ") && line.ends_with(" s\n");
    let lines = stderr.split_inclusive('\n');
    Ran {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: lines.filter(|line| !is_summary(line)).collect(),
    }
}

/// Runs a script in `dir` as an unprivileged user who is root in a user namespace. `$0` is the
/// program under test. The user owns the directory `mnt` and the file `listing`.
#[track_caller]
pub fn in_namespace(dir: &Path, script: &str) {
    const NOBODY: u32 = 65534;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(dir.join("mnt")).unwrap();
    fs::write(dir.join("listing"), "").unwrap();
    for name in ["mnt", "listing"] {
        std::os::unix::fs::chown(dir.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let program = command(&["--version"]);
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .args(["unshare", "--user", "--map-root-user", "--mount"])
        .args(["sh", "-c", script])
        .arg(program.get_program())
        .current_dir(dir)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {told}");
}

/// A directory with a tree of files, and an image of it.
pub struct Fixture {
    pub dir: TempDir,
}

impl Fixture {
    /// Creates the tree and an image of it. Without genromfs, reports that and returns `None`.
    pub fn new() -> Option<Self> {
        let fixture = Self::tree();
        let made = genromfs(
            &fixture.path("tree"),
            &fixture.path("a.img"),
            &["-V", "vol"],
        );
        made.then_some(fixture)
    }

    /// Creates the tree without the image.
    pub fn tree() -> Self {
        let dir = temp_dir("cli");
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("etc/empty")).unwrap();
        fs::create_dir_all(tree.join("bin")).unwrap();
        fs::write(tree.join("big"), big()).unwrap();
        fs::write(tree.join("etc/passwd"), "root:x:0:0\n").unwrap();
        fs::write(tree.join("bin/tool"), "#!/bin/sh\n").unwrap();
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(tree.join("bin/tool"), executable).unwrap();
        fs::write(tree.join(OsStr::from_bytes(b"odd\n\x1b\xff")), "odd").unwrap();
        symlink("etc/passwd", tree.join("link")).unwrap();
        fs::hard_link(tree.join("big"), tree.join("hard")).unwrap();
        Self { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns a command that runs in the directory of the fixture, so that messages contain no
    /// random names.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.current_dir(self.dir.path());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args).output().expect("forerun starts"))
    }

    pub fn run_with(&self, args: &[&str], stdin: &Path) -> Ran {
        let file = fs::File::open(stdin).unwrap();
        ran(self
            .command(args)
            .stdin(file)
            .output()
            .expect("forerun starts"))
    }

    pub fn run_piped(&self, args: &[&str], stdin: Vec<u8>) -> Ran {
        use std::io::Write;
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("forerun starts");
        let mut pipe = child.stdin.take().unwrap();
        let feeder = std::thread::spawn(move || {
            // A program that fails early does not read to the end.
            let _ = pipe.write_all(&stdin);
        });
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        ran(output)
    }
}

/// Returns bytes that do not repeat.
pub fn big() -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..BIG).map(|_| next()).collect()
}

pub fn sum_of(objects: &[Value], field: &str) -> u64 {
    let fields = objects.iter().map(|object| object[field].as_u64().unwrap());
    fields.sum()
}
