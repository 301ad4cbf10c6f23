//! Pieces of work that are measured, and what comes out of a run of one.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{MemfdFlags, memfd_create};

use super::active::temp_dir;
use super::counters::{Counters, parse};
use super::process;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub seconds: f64,
    /// The counters of forerun; empty for others.
    pub counters: Counters,
    /// The most memory that daemon or program had, in bytes.
    pub peak: Option<u64>,
    /// The data that was found: the same from all drivers.
    pub found: String,
}

/// Measures the wall time of some work, in seconds.
pub fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let start = Instant::now();
    let done = work()?;
    Ok((start.elapsed().as_secs_f64(), done))
}

/// The program that does the [`Work`](super::work::Work), in processes of its own.
#[derive(Clone, Debug)]
pub struct Worker {
    program: PathBuf,
    words: Vec<OsString>,
}

impl Worker {
    /// Creates a worker that is the running program, called with these words before those of the work.
    pub fn this_program(words: &[&str]) -> Result<Self> {
        Ok(Self {
            program: std::env::current_exe()?,
            words: words.iter().map(OsString::from).collect(),
        })
    }

    /// Has a process do some work at a path. Returns what it found.
    pub fn run(&self, work: &[&str], path: &Path) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(&self.words).args(work).arg(path);
        Ok(process::output(command.stdin(Stdio::null()))?
            .trim()
            .to_string())
    }

    /// Reads all files as users do: `find` names them, `xargs` has several processes read them.
    pub fn share(&self, path: &Path, processes: u32) -> Result<String> {
        const SCRIPT: &str = r#"find . -type f -print0 |
            xargs --null --no-run-if-empty --max-args=250 --max-procs="$0" "$@""#;
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT]).arg(processes.to_string());
        command.arg(&self.program).args(&self.words).arg("files");
        command.current_dir(path).stdin(Stdio::null());
        total(&process::output(&mut command)?)
    }
}

/// Adds up the files and bytes of several processes.
fn total(printed: &str) -> Result<String> {
    let (mut files, mut bytes) = (0_u64, 0_u64);
    for line in printed.lines() {
        let (more_files, more_bytes) = line.split_once(' ').context("two numbers")?;
        files += more_files.parse::<u64>()?;
        bytes += more_bytes.parse::<u64>()?;
    }
    Ok(format!("{files} {bytes}"))
}

/// Lists a tree with everything that `ls -l` asks for. `ls` writes to memory: the reader of a pipe would take a
/// processor from the driver that is measured.
pub fn list(path: &Path) -> Result<String> {
    let mut listing = File::from(memfd_create("listing", MemfdFlags::CLOEXEC)?);
    let mut ls = Command::new("ls");
    ls.env("LC_ALL", "C").args(["-lR", "."]);
    ls.current_dir(path).stdout(listing.try_clone()?);
    let output = process::collect_errors(&mut ls).context("ls")?;
    process::successful(&ls, output)?;
    let mut names = Vec::new();
    listing.rewind()?;
    listing.read_to_end(&mut names)?;
    // Names need not be UTF-8.
    let lines = names.iter().filter(|byte| **byte == b'\n');
    Ok(format!("{} lines", lines.count()))
}

/// Has the program of a command in memory: how it gets there is not measured.
pub fn load(program: &OsStr, arguments: &[&str]) {
    let mut command = Command::new(program);
    // Some programs know no argument that succeeds.
    let _loaded = process::collect(command.args(arguments).stdin(Stdio::null()));
}

/// Runs to the end, with an eye on its memory. Its output has the counters.
pub fn watched(command: &mut Command) -> Result<Run> {
    let dir = temp_dir("bench")?;
    let path = dir.path().join("log");
    let log = File::create(&path)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?);
    let start = Instant::now();
    let child = process::spawn(command.stderr(log));
    let mut child = child.with_context(|| process::describe(command))?;
    let id = child.id();
    // The high-water mark only grows: what is missed is what grew in the last moments.
    let watcher = thread::spawn(move || {
        let mut peak = None;
        while let Some(now) = peak_of(id) {
            peak = Some(now);
            thread::sleep(Duration::from_millis(10));
        }
        peak
    });
    let status = child.wait()?;
    let seconds = start.elapsed().as_secs_f64();
    let peak = watcher.join().ok().flatten();
    let log = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
    ensure!(
        status.success(),
        "{}: {status}\n{}",
        process::describe(command),
        log.trim_end()
    );
    Ok(Run {
        seconds,
        counters: parse(&log),
        peak,
        ..Run::default()
    })
}

/// Returns the most memory that a process had at any time, in bytes; `None` for one that has ended.
pub fn peak_of(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib.saturating_mul(1024))
}
