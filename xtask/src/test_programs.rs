//! The tests of the workspace: built by one `cargo test`, and run two programs at a time.
//!
//! `cargo test` runs one test program after the other. Those of the commands, of mounts and of servers
//! wait more than they compute, so two of them side by side keep the cores busy. The tests of the documentation,
//! which use one core, run beside them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Seek, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use forerun_io::Unpoisoned;
use forerun_testkit::{PROGRAM, memory, require};
use serde_json::Value;

use crate::{fuse_device, process};

/// The choice of packages and features in every step; with another, cargo would build most crates anew.
const WHOLE: [&str; 3] = ["--locked", "--workspace", "--all-features"];

/// The time limit of one test program in CI: several times what the longest takes.
const PROGRAM_LIMIT: &str = "30m";

/// The number of tests that run side by side in a test program; the user's value counts.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// The packages whose tests make mounts and mount namespaces by the dozen. A namespace keeps a
/// copy of each mount there is, and with it the mount's image busy: these run one after the other.
const ONE_AT_A_TIME: [&str; 4] = [
    "crates/front/cli",
    "crates/front/fuse",
    "crates/front/kernel",
    "python",
];

/// The packages whose tests need a disk: Linux mounts no EROFS image that is a file in memory.
const ON_DISK: [&str; 5] = [
    "crates/formats/erofs",
    "crates/front/cli",
    "crates/front/kernel",
    "crates/front/runtime",
    "python",
];

/// The variable that names the directory for temporary files; the user's value counts.
const TEMPORARY: &str = "TMPDIR";
/// Several times as much as tests keep there at a time.
const ROOM: u64 = 6 << 30;

/// A test program, and the folder of its package, in which cargo starts tests.
#[derive(Debug, PartialEq, Eq)]
struct TestProgram {
    path: PathBuf,
    dir: PathBuf,
}

/// The end of a test program.
#[derive(Debug, Default)]
struct Ended {
    /// The names of the tests that were skipped, by the reason.
    skipped: BTreeMap<String, Vec<String>>,
    failed: Option<Failed>,
}

/// A test program whose tests failed.
#[derive(Debug)]
struct Failed {
    name: String,
    /// Its output about the failures.
    printed: String,
}

/// Builds all tests and runs them. Goes on where some fail.
///
/// # Errors
/// Names the programs whose tests failed.
pub fn run(root: &Path) -> Result<()> {
    let mut programs = build(root)?;
    // The larger a program, the more of the project it tests: those that take longest do not come last.
    programs
        .sort_by_cached_key(|test| Reverse(fs::metadata(&test.path).map_or(0, |file| file.len())));
    // The tests of the command line have it built; with other crates' features it would be built anew.
    let program = process::target_dir(root)?.join("debug/forerun");
    // On a disk, ext4 spends most of the time of such tests with the search for free inodes, since files are made
    // and removed by the ten thousand.
    let is_free = std::env::var_os(TEMPORARY).is_none();
    let surroundings = Surroundings {
        root,
        program: &program,
        memory: memory(ROOM).filter(|_| is_free),
    };
    fuse_device::provide().context("/dev/fuse for every user")?;
    let (ended, examples) = thread::scope(|scope| {
        let examples = scope.spawn(|| run_examples(root));
        let ended = run_in_lanes(programs, &|test| surroundings.run_one(test));
        (ended, examples.join())
    });
    let mut ended = ended?;
    match examples {
        Ok(examples) => ended.push(examples?),
        Err(_) => bail!("the thread that runs the tests of the documentation panicked"),
    }
    print!("{}", all_skipped(&ended));
    let failed: Vec<_> = ended.into_iter().filter_map(|ended| ended.failed).collect();
    let names: Vec<_> = failed.iter().map(|failed| failed.name.as_str()).collect();
    // Once more, as the last lines: thousands of lines may lie between a failure and the end.
    for Failed { name, printed } in &failed {
        println!("==> {name}\n{printed}");
    }
    ensure!(names.is_empty(), "failed: {}", names.join(", "));
    Ok(())
}

/// Runs the tests of the documentation.
fn run_examples(root: &Path) -> Result<Ended> {
    let mut cargo = process::cargo(root);
    cargo.args(["test", "--doc", "--no-fail-fast"]).args(WHOLE);
    let (status, printed) = captured(&mut process::niced(&cargo))?;
    let mut out = std::io::stdout().lock();
    out.write_all(&printed)?;
    let name = "the tests of the documentation".to_string();
    Ok(Ended::new(name, status, &printed))
}

/// Runs a command to its end. Returns what it printed.
fn captured(command: &mut Command) -> Result<(ExitStatus, Vec<u8>)> {
    let mut printed = tempfile::tempfile()?;
    command
        .stdin(Stdio::null())
        .stdout(printed.try_clone()?)
        .stderr(printed.try_clone()?);
    let status = command.status();
    let status = status.with_context(|| process::describe(command).to_string())?;
    let mut text = Vec::new();
    printed.rewind()?;
    printed.read_to_end(&mut text)?;
    Ok((status, text))
}

/// Builds the test programs. Returns them in cargo's order.
fn build(root: &Path) -> Result<Vec<TestProgram>> {
    let build = || {
        let mut cargo = process::cargo(root);
        cargo.args(["test", "--no-run"]).args(WHOLE);
        cargo
    };
    process::run(&mut build())?;
    // Again, with nothing left to build, for the paths.
    let messages = process::output(build().arg("--message-format=json"))?;
    let programs = messages.lines().map(parse);
    let programs: Vec<TestProgram> = programs
        .filter_map(Result::transpose)
        .collect::<Result<_>>()?;
    ensure!(!programs.is_empty(), "cargo built no test program");
    Ok(programs)
}

/// Returns the test program that a message of cargo tells of, if it tells of one.
fn parse(line: &str) -> Result<Option<TestProgram>> {
    let message: Value = serde_json::from_str(line).context("a message of cargo")?;
    let is_test = message["profile"]["test"] == true;
    let Some(path) = message["executable"].as_str().filter(|_| is_test) else {
        return Ok(None);
    };
    let manifest = message["manifest_path"].as_str().map(Path::new);
    let dir = manifest.and_then(Path::parent);
    Ok(Some(TestProgram {
        path: PathBuf::from(path),
        dir: dir
            .ok_or_else(|| anyhow!("cargo names no package of {path}"))?
            .to_owned(),
    }))
}

/// Runs the programs in two lanes: those that run one at a time in the first, which then helps with the
/// others.
fn run_in_lanes(
    programs: Vec<TestProgram>,
    run_one: &(dyn Fn(&TestProgram) -> Result<Ended> + Sync),
) -> Result<Vec<Ended>> {
    let (first, second): (VecDeque<_>, VecDeque<_>) =
        programs.into_iter().partition(TestProgram::runs_alone);
    let (first, second) = (Mutex::new(first), Mutex::new(second));
    let all_ended = Mutex::new(Vec::new());
    let run_all = |queues: &[&Mutex<VecDeque<TestProgram>>]| -> Result<()> {
        while let Some(test) = queues
            .iter()
            .find_map(|queue| queue.lock().unpoisoned().pop_front())
        {
            // Not with the lock held: the other lane would wait for it.
            let ended = run_one(&test)?;
            all_ended.lock().unpoisoned().push(ended);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let lane = scope.spawn(|| run_all(&[&first, &second]));
        let ended = run_all(&[&second]);
        match lane.join() {
            Ok(lane) => lane.and(ended),
            Err(_) => bail!("a thread that runs tests panicked"),
        }
    })?;
    Ok(all_ended.into_inner().unpoisoned())
}

impl TestProgram {
    fn runs_alone(&self) -> bool {
        ONE_AT_A_TIME.iter().any(|dir| self.dir.ends_with(dir))
    }

    fn needs_disk(&self) -> bool {
        ON_DISK.iter().any(|dir| self.dir.ends_with(dir))
    }
}

/// The surroundings that all test programs of a run share.
struct Surroundings<'a> {
    root: &'a Path,
    /// The program that the tests of the command line run.
    program: &'a Path,
    /// A directory for temporary files in memory.
    memory: Option<&'a Path>,
}

impl Surroundings<'_> {
    /// Runs one test program and then prints what it printed, so that the lines of two do not mix.
    fn run_one(&self, test: &TestProgram) -> Result<Ended> {
        // Those that run alone go by time more than the others, which compute: these make room for them.
        let mut command = Command::new("nice");
        command.args(["-n", if test.runs_alone() { "0" } else { "5" }]);
        if require::in_ci() {
            // A test that hangs would end the run without a word of which one it was. Not for a person,
            // whose Ctrl-C would not get through.
            command.args(["timeout", "--verbose", "--kill-after=30s", PROGRAM_LIMIT]);
        }
        command.arg(&test.path);
        command.current_dir(&test.dir);
        command.env("CARGO_MANIFEST_DIR", &test.dir);
        command.env(PROGRAM, self.program);
        if let Some(memory) = self.memory.filter(|_| !test.needs_disk()) {
            command.env(TEMPORARY, memory);
        }
        // Many tests wait: for servers, mounts and time limits.
        if std::env::var_os(TEST_THREADS).is_none() {
            let cores = thread::available_parallelism().map_or(1, usize::from);
            command.env(TEST_THREADS, (2 * cores).to_string());
        }
        let (status, text) = captured(&mut command)?;
        let mut out = std::io::stdout().lock();
        let shown = test.path.strip_prefix(self.root).unwrap_or(&test.path);
        let dir = test.dir.strip_prefix(self.root).unwrap_or(&test.dir);
        writeln!(out, "     Running {} ({})", dir.display(), shown.display())?;
        out.write_all(&text)?;
        let name = shown.display().to_string();
        if !status.success() {
            writeln!(out, "{name}: {status}")?;
        }
        Ok(Ended::new(name, status, &text))
    }
}

impl Ended {
    fn new(name: String, status: ExitStatus, printed: &[u8]) -> Self {
        let printed = String::from_utf8_lossy(printed);
        let mut skipped = BTreeMap::<_, Vec<_>>::new();
        for line in printed.lines() {
            if let Some((test, reason)) = require::skipped(line) {
                skipped
                    .entry(reason.to_owned())
                    .or_default()
                    .push(test.to_owned());
            }
        }
        let failed = (!status.success()).then(|| Failed {
            name,
            printed: failures(&printed).to_owned(),
        });
        Self { skipped, failed }
    }
}

/// Lists the skipped tests of all programs: a run that ends well has shown nothing about them.
fn all_skipped(ended: &[Ended]) -> String {
    let mut all = BTreeMap::<&str, Vec<&str>>::new();
    for (reason, tests) in ended.iter().flat_map(|ended| &ended.skipped) {
        let of_reason = all.entry(reason).or_default();
        of_reason.extend(tests.iter().map(String::as_str));
    }
    let mut lines = String::new();
    for (reason, mut tests) in all {
        tests.sort_unstable();
        tests.dedup();
        let _to_memory = writeln!(
            lines,
            "SKIPPED: {} tests, as {reason}: {}",
            tests.len(),
            tests.join(" ")
        );
    }
    lines
}

/// Returns the part of a test program's output that tells of failures: from their heading on, or the last
/// lines where there is none, as after a crash.
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
            path: PathBuf::from("/a/target/debug/deps/it-1"),
            dir: PathBuf::from("/a/crates/io"),
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

    #[test]
    fn programs_that_run_alone_never_meet_and_all_failures_are_named() {
        let program = |dir: &str, n: u32| TestProgram {
            path: PathBuf::from(format!("{dir}/{n}")),
            dir: PathBuf::from(dir),
        };
        let programs = (0..40).map(|n| match n % 3 {
            0 => program("/a/crates/front/cli", n),
            1 => program("/a/crates/front/kernel", n),
            _ => program("/a/crates/io", n),
        });
        let alone = Mutex::new(());
        let count = std::sync::atomic::AtomicUsize::new(0);
        let failed = run_in_lanes(programs.collect(), &|test| {
            let _guard = test.runs_alone().then(|| alone.try_lock().unwrap());
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let fails = test.path.ends_with("7") || test.path.ends_with("8");
            let failed = fails.then(|| Failed {
                name: test.path.display().to_string(),
                printed: String::new(),
            });
            Ok(Ended {
                failed,
                ..Ended::default()
            })
        });
        let failed = failed.unwrap().into_iter();
        let failed = failed.filter_map(|ended| ended.failed);
        let mut failed: Vec<_> = failed.map(|failed| failed.name).collect();
        failed.sort();
        assert_eq!(failed, ["/a/crates/front/kernel/7", "/a/crates/io/8"]);
        assert_eq!(count.into_inner(), 40);
    }

    #[test]
    fn skipped_tests_are_listed_by_what_the_machine_lacks() {
        let success = ExitStatus::default();
        let first = "SKIP: b::c: this machine lacks root\ntest b::c ... ok\n\
                     SKIP: a: this machine lacks root\nSKIP: a: this machine lacks root\n";
        let second = "SKIP: d: this machine lacks the program zip\nno SKIP: e: this\n";
        let ended = [first, second].map(|text| Ended::new(String::new(), success, text.as_bytes()));
        assert_eq!(
            all_skipped(&ended),
            "SKIPPED: 2 tests, as this machine lacks root: a b::c\n\
             SKIPPED: 1 tests, as this machine lacks the program zip: d\n"
        );
        assert_eq!(all_skipped(&[]), "");
    }

    #[test]
    fn failures_are_shown_from_their_heading_on_or_the_last_lines() {
        let printed = "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nno\n";
        assert_eq!(failures(printed), "failures:\n\n---- b stdout ----\nno");
        let lines: Vec<_> = (0..50).map(|n| n.to_string()).collect();
        let shown = failures(&(lines.join("\n") + "\n")).to_owned();
        assert_eq!(shown, lines[10..].join("\n"));
        assert_eq!(failures("only\n"), "only");
    }
}
