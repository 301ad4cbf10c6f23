//! The tests of the workspace: built by one `cargo test`, and run two programs at a time.
//!
//! `cargo test` runs one test program after the other. The tests of commands, mounts and servers
//! wait more than they compute, so two of them in parallel keep the cores busy. The documentation
//! tests, which use one core, run in parallel too.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use forerun_testkit::{PROGRAM, memory, require};
use serde_json::Value;

use crate::process;

/// The packages and features in every step. With others, cargo would build most crates again.
const WHOLE: [&str; 3] = ["--locked", "--workspace", "--all-features"];

/// The time limit of one test program in CI: several times that of the longest.
const PROGRAM_LIMIT: &str = "30m";

/// Slower programs are listed at the end.
const SLOW: Duration = Duration::from_secs(60);

/// The packages whose tests make many mounts and mount namespaces. A namespace has a copy of each
/// mount, which keeps the image busy, so these run one after the other.
const ONE_AT_A_TIME: [&str; 4] = [
    "crates/front/cli",
    "crates/front/fuse",
    "crates/front/kernel",
    "python",
];

/// The packages whose tests need a disk, because Linux cannot mount an EROFS image file that is in
/// memory.
const ON_DISK: [&str; 5] = [
    "crates/formats/erofs",
    "crates/front/cli",
    "crates/front/kernel",
    "crates/front/runtime",
    "python",
];

/// Several times the size of the tests' files in memory.
const ROOM: u64 = 6 << 30;

/// A test program, and its package's directory, in which cargo starts tests.
#[derive(Debug, PartialEq, Eq)]
struct TestProgram {
    path: PathBuf,
    dir: PathBuf,
}

#[derive(Debug)]
struct Ended {
    name: String,
    printed: String,
    failed: bool,
    took: Duration,
}

/// Builds and runs all tests. Continues after failures. The error names the programs whose tests
/// failed.
pub fn run(root: &Path) -> Result<()> {
    let mut programs = build(root)?;
    // A larger program tests more of the project, so the slowest programs do not come last.
    programs
        .sort_by_cached_key(|test| Reverse(fs::metadata(&test.path).map_or(0, |file| file.len())));
    // The tests of the command line have built it; with other crates' features it would be built
    // again.
    let program = process::target_dir(root)?.join("debug/forerun");
    let (ended, examples) = thread::scope(|scope| {
        let examples = scope.spawn(|| run_examples(root));
        let ended = in_two_lanes(programs, &|test| run_one(root, &program, test));
        (ended, examples.join())
    });
    let mut ended = ended?;
    ended.push(examples.unwrap_or_else(|_| {
        bail!("the thread that runs the tests of the documentation panicked")
    })?);
    print!("{}", summary(&ended));
    let failed = ended
        .iter()
        .filter(|ended| ended.failed)
        .map(|ended| &*ended.name);
    let failed: Vec<&str> = failed.collect();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Builds the test programs. Returns them in cargo's order.
fn build(root: &Path) -> Result<Vec<TestProgram>> {
    let build = || {
        let mut cargo = process::cargo(root);
        cargo.args(["test", "--no-run"]).args(WHOLE);
        cargo
    };
    process::run(&mut build())?;
    // A second call, with nothing to build, prints the paths.
    let messages = process::output(build().arg("--message-format=json"))?;
    let programs = messages.lines().filter_map(|line| parse(line).transpose());
    let programs: Vec<TestProgram> = programs.collect::<Result<_>>()?;
    ensure!(!programs.is_empty(), "cargo built no test program");
    Ok(programs)
}

/// Returns the test program in a message of cargo, if it names one.
fn parse(line: &str) -> Result<Option<TestProgram>> {
    let message: Value = serde_json::from_str(line).context("a message of cargo")?;
    let is_test = message["profile"]["test"] == true;
    let Some(path) = message["executable"].as_str().filter(|_| is_test) else {
        return Ok(None);
    };
    let dir = message["manifest_path"]
        .as_str()
        .and_then(|manifest| Path::new(manifest).parent());
    let dir = dir.with_context(|| format!("cargo names no package of {path}"))?;
    Ok(Some(TestProgram {
        path: path.into(),
        dir: dir.into(),
    }))
}

/// Runs the programs in two threads. The first starts with the programs that run one at a time, and
/// then helps with the others.
fn in_two_lanes(
    programs: Vec<TestProgram>,
    run_one: &(dyn Fn(&TestProgram) -> Result<Ended> + Sync),
) -> Result<Vec<Ended>> {
    let (alone, others): (Vec<_>, Vec<_>) = programs
        .into_iter()
        .partition(|test| test.is_of(&ONE_AT_A_TIME));
    let others = Mutex::new(others.into_iter());
    let lane = |first: Vec<TestProgram>| -> Result<Vec<Ended>> {
        let next = || others.lock().ok()?.next();
        first
            .into_iter()
            .chain(std::iter::from_fn(next))
            .map(|test| run_one(&test))
            .collect()
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| lane(alone));
        let mut ended = lane(Vec::new())?;
        ended.extend(
            first
                .join()
                .unwrap_or_else(|_| bail!("a thread that runs tests panicked"))?,
        );
        Ok(ended)
    })
}

impl TestProgram {
    fn is_of(&self, packages: &[&str]) -> bool {
        packages.iter().any(|dir| self.dir.ends_with(dir))
    }
}

/// Runs one test program and then prints its output, so that the lines of two programs do not mix.
fn run_one(root: &Path, program: &Path, test: &TestProgram) -> Result<Ended> {
    let mut command = with_fuse(root);
    // The programs that run one at a time depend on timing, so the others, which compute, get a
    // lower priority.
    command.args([
        "nice",
        "-n",
        if test.is_of(&ONE_AT_A_TIME) { "0" } else { "5" },
    ]);
    if require::in_ci() {
        // A test that hangs would otherwise end the run without naming it. Not for a person, whose
        // Ctrl-C would not pass through timeout.
        command.args(["timeout", "--verbose", "--kill-after=30s", PROGRAM_LIMIT]);
    }
    command.arg(&test.path).current_dir(&test.dir);
    command
        .env("CARGO_MANIFEST_DIR", &test.dir)
        .env(PROGRAM, program);
    // On a disk, ext4 spends most of the time of such tests searching for free inodes, because they
    // create and remove tens of thousands of files. The user's value takes precedence.
    if let Some(memory) = memory(ROOM).filter(|_| is_unset("TMPDIR") && !test.is_of(&ON_DISK)) {
        command.env("TMPDIR", memory);
    }
    // Many tests wait for servers, mounts and time limits.
    if is_unset("RUST_TEST_THREADS") {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        command.env("RUST_TEST_THREADS", (2 * cores).to_string());
    }
    let shown = test.path.strip_prefix(root).unwrap_or(&test.path);
    captured(&mut command, shown.display().to_string())
}

fn is_unset(variable: &str) -> bool {
    std::env::var_os(variable).is_none()
}

fn run_examples(root: &Path) -> Result<Ended> {
    let mut command = with_fuse(root);
    command
        .args(["nice", "-n", "5"])
        .arg(process::cargo(root).get_program());
    command
        .args(["test", "--doc", "--no-fail-fast"])
        .args(WHOLE)
        .current_dir(root);
    captured(&mut command, "the tests of the documentation".to_string())
}

/// Returns a command that runs another one with a `/dev/fuse` for every user.
fn with_fuse(root: &Path) -> Command {
    Command::new(root.join("tools/with-fuse.sh"))
}

/// Runs a command to its end, and prints its output.
fn captured(command: &mut Command, name: String) -> Result<Ended> {
    let mut output = tempfile::tempfile()?;
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?);
    let start = Instant::now();
    let status = command
        .status()
        .with_context(|| process::describe(command))?;
    let took = start.elapsed();
    let mut printed = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut printed)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "     Running {name}")?;
    out.write_all(&printed)?;
    writeln!(out, "{name}: {status}, {:.1} s", took.as_secs_f64())?;
    let printed = String::from_utf8_lossy(&printed).into_owned();
    Ok(Ended {
        name,
        printed,
        failed: !status.success(),
        took,
    })
}

/// Formats the results of all programs: skipped tests, because a successful run has shown nothing
/// about them, slow programs, and the output of failures, because thousands of lines may come in
/// between.
fn summary(ended: &[Ended]) -> String {
    let mut skipped = BTreeMap::<&str, BTreeSet<&str>>::new();
    for (test, reason) in ended
        .iter()
        .flat_map(|ended| ended.printed.lines().filter_map(require::skipped))
    {
        skipped.entry(reason).or_default().insert(test);
    }
    let mut text = String::new();
    for (reason, tests) in skipped {
        let names: Vec<&str> = tests.into_iter().collect();
        text += &format!(
            "SKIPPED: {} tests, as {reason}: {}\n",
            names.len(),
            names.join(" ")
        );
    }
    for slow in ended.iter().filter(|ended| ended.took >= SLOW) {
        text += &format!("SLOW: {}: {} s\n", slow.name, slow.took.as_secs());
    }
    for failed in ended.iter().filter(|ended| ended.failed) {
        text += &format!("==> {}\n{}\n", failed.name, failures(&failed.printed));
    }
    text
}

/// Returns the part of a test program's output about failures: from their heading on, or the last
/// lines if there is none, as after a crash.
fn failures(printed: &str) -> &str {
    /// The number of lines that show how a program ended.
    const LAST: usize = 40;
    let heading = printed.find("\nfailures:\n");
    let start = heading.unwrap_or_else(|| {
        let ends = printed.rmatch_indices('\n');
        ends.map(|(at, _)| at).nth(LAST).unwrap_or(0)
    });
    printed[start..].trim_matches('\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_programs_are_taken_from_the_messages_of_cargo() {
        let test = r#"{"reason":"compiler-artifact","manifest_path":"/a/crates/io/Cargo.toml",
            "profile":{"test":true},"executable":"/a/target/debug/deps/it-1"}"#;
        let expected = TestProgram {
            path: "/a/target/debug/deps/it-1".into(),
            dir: "/a/crates/io".into(),
        };
        assert_eq!(parse(test).unwrap(), Some(expected));
        for other in [
            r#"{"reason":"build-finished","success":true}"#,
            r#"{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml",
                "profile":{"test":true},"executable":null}"#,
            r#"{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml",
                "profile":{"test":false},"executable":"/a/target/debug/forerun"}"#,
        ] {
            assert_eq!(parse(other).unwrap(), None, "{other}");
        }
        assert!(parse("not JSON").is_err());
    }

    fn ended(name: &str, printed: &str, failed: bool, seconds: u64) -> Ended {
        let took = Duration::from_secs(seconds);
        Ended {
            name: name.to_string(),
            printed: printed.to_string(),
            failed,
            took,
        }
    }

    #[test]
    fn programs_that_run_alone_never_meet_and_each_runs_once() {
        let dirs = [
            "/a/crates/front/cli",
            "/a/crates/front/kernel",
            "/a/crates/io",
        ];
        let programs = (0..40).zip(dirs.iter().cycle());
        let programs = programs.map(|(n, dir)| TestProgram {
            path: format!("{dir}/{n:02}").into(),
            dir: dir.into(),
        });
        let alone = Mutex::new(());
        let all = in_two_lanes(programs.collect(), &|test| {
            let _guard = test
                .is_of(&ONE_AT_A_TIME)
                .then(|| alone.try_lock().unwrap());
            Ok(ended(&test.path.display().to_string(), "", false, 0))
        });
        let mut names: Vec<_> = all.unwrap().into_iter().map(|ended| ended.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 40);
    }

    #[test]
    fn the_summary_names_what_was_skipped_slow_or_failed() {
        let first = "SKIP: b::c: this machine lacks root\ntest b::c ... ok\n\
                     SKIP: a: this machine lacks root\nSKIP: a: this machine lacks root\n";
        let second = "SKIP: d: this machine lacks the program zip\nno SKIP: e: this\n\nfailures:\n\n---- d ----\nno\n";
        let all = [
            ended("one", first, false, 75),
            ended("two", second, true, 1),
        ];
        assert_eq!(
            summary(&all),
            "SKIPPED: 2 tests, as this machine lacks root: a b::c\n\
             SKIPPED: 1 tests, as this machine lacks the program zip: d\n\
             SLOW: one: 75 s\n\
             ==> two\nfailures:\n\n---- d ----\nno\n"
        );
        assert_eq!(summary(&[]), "");
    }

    #[test]
    fn a_crash_shows_the_last_lines() {
        let lines: Vec<_> = (0..50).map(|n| n.to_string()).collect();
        let shown = failures(&(lines.join("\n") + "\n")).to_owned();
        assert_eq!(shown, lines[10..].join("\n"));
        assert_eq!(failures("only\n"), "only");
    }

    #[test]
    fn users_open_the_device_of_the_tests_and_the_machine_keeps_its_own() {
        use std::os::unix::fs::MetadataExt;
        if !require::root() || !require::fuse() || require::program("setpriv").is_none() {
            return;
        }
        let device = || {
            fs::metadata("/dev/fuse")
                .map(|device| (device.dev(), device.mode()))
                .unwrap()
        };
        let before = device();
        let mut user = with_fuse(forerun_testkit::workspace_root());
        user.args([
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--",
        ]);
        user.args(["sh", "-c", "exec 3<>/dev/fuse"]);
        assert!(user.status().unwrap().success());
        assert_eq!(device(), before);
    }
}
