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

use crate::active::temp_dir;
use crate::counters::{Counters, parse};
use crate::process;
use crate::samples::Samples;
use crate::statistics::middle;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Wall time.
    pub seconds: f64,
    /// The counters of forerun; empty for others.
    pub counters: Counters,
    /// The most memory that daemon or program had, in bytes.
    pub peak: Option<u64>,
    /// Processor time that the daemon took, in seconds.
    pub cpu: Option<f64>,
    /// Length of the image that was made.
    pub made: Option<u64>,
    /// The data that was found: the same from all drivers.
    pub found: String,
}

impl Samples<Run> {
    /// Returns the data that all runs found, or `None` where they differ.
    #[must_use]
    pub fn found(&self) -> Option<&str> {
        let first = &self.runs.first()?.found;
        let is_same = self.runs.iter().all(|run| run.found == *first);
        is_same.then_some(first)
    }

    /// Returns the most memory of all runs.
    #[must_use]
    pub fn peak(&self) -> Option<u64> {
        self.runs.iter().filter_map(|run| run.peak).max()
    }

    /// Returns the number of messages of the FUSE protocol.
    #[must_use]
    pub fn messages(&self) -> Option<u64> {
        let of = |run: &Run| {
            let named = run.counters.iter();
            let named = named.filter(|(name, _)| name.starts_with("fuse_"));
            named.map(|(_, count)| count).sum::<u64>()
        };
        middle(self.runs.iter().map(of)).filter(|&count| count > 0)
    }
}

/// Measures the wall time of some work, in seconds.
pub fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let start = Instant::now();
    let done = work()?;
    Ok((start.elapsed().as_secs_f64(), done))
}

/// The program that does the [`Work`](crate::work::Work) of this library, in processes of its own.
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

    /// Returns a command for some work.
    #[must_use]
    pub fn command(&self, work: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.words).args(work).stdin(Stdio::null());
        command
    }

    /// Has a process do some work at a path. Returns what it found.
    pub fn run(&self, work: &[&str], path: &Path) -> Result<String> {
        let mut command = self.command(work);
        Ok(process::output(command.arg(path))?.trim().to_string())
    }

    /// Reads all files as users do: `find` names them, `xargs` has several processes read them.
    pub fn share(&self, path: &Path, processes: u32) -> Result<String> {
        total(&process::output(&mut self.sharing(path, processes))?)
    }

    /// Returns the command that reads all files with several processes.
    pub(crate) fn sharing(&self, path: &Path, processes: u32) -> Command {
        const SCRIPT: &str = r#"find . -type f -print0 |
            xargs --null --no-run-if-empty --max-args=250 --max-procs="$0" "$@""#;
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT]).arg(processes.to_string());
        command.arg(&self.program).args(&self.words).arg("files");
        command.current_dir(path).stdin(Stdio::null());
        command
    }
}

/// Adds up the files and bytes of several processes.
pub(crate) fn total(printed: &str) -> Result<String> {
    let (mut files, mut bytes) = (0_u64, 0_u64);
    for line in printed.lines() {
        let (more_files, more_bytes) = line.split_once(' ').context("two numbers")?;
        files += more_files.parse::<u64>()?;
        bytes += more_bytes.parse::<u64>()?;
    }
    Ok(format!("{files} {bytes}"))
}

/// Writes a file to nowhere.
pub fn cat(path: &Path) -> Result<String> {
    let mut command = Command::new("cat");
    process::run(command.arg(path).stdin(Stdio::null()).stdout(Stdio::null()))?;
    Ok(path.metadata()?.len().to_string())
}

/// Lists a tree with everything that `ls -l` asks for.
pub fn list(path: &Path) -> Result<String> {
    let listing = listing()?;
    let output = process::collect_errors(listing_of(path).stdout(listing.try_clone()?));
    let output = output.context("ls")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ls -lR: {said}");
    Ok(lines(&read(&listing)?))
}

/// Returns the command that lists a tree.
pub(crate) fn listing_of(path: &Path) -> Command {
    let mut command = Command::new("ls");
    command.env("LC_ALL", "C").args(["-lR", "."]);
    command.current_dir(path);
    command
}

/// Creates a file that `ls` writes to, in memory: the reader of a pipe would take a processor from the driver that
/// is measured.
pub(crate) fn listing() -> Result<File> {
    Ok(File::from(memfd_create("listing", MemfdFlags::CLOEXEC)?))
}

/// Returns what was written to a listing.
pub(crate) fn read(mut listing: &File) -> Result<Vec<u8>> {
    let mut names = Vec::new();
    listing.rewind()?;
    listing.read_to_end(&mut names)?;
    Ok(names)
}

/// Returns the number of lines, as what a listing found.
pub(crate) fn lines(names: &[u8]) -> String {
    // Names need not be UTF-8.
    let lines = names.iter().filter(|byte| **byte == b'\n');
    format!("{} lines", lines.count())
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

/// Returns the processor time that a process took so far, in seconds, to a hundredth; `None` for one that has ended.
#[must_use]
#[allow(clippy::as_conversions, clippy::cast_precision_loss)] // Ticks far below 2^53.
pub fn cpu_seconds_of(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in parentheses, and may have spaces and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11);
    let user: u64 = times.next()?.parse().ok()?;
    let system: u64 = times.next()?.parse().ok()?;
    let ticks = rustix::param::clock_ticks_per_second();
    Some(user.saturating_add(system) as f64 / ticks as f64)
}

/// Returns the most memory that a process had at any time, in bytes; `None` for one that has ended.
#[must_use]
pub fn peak_of(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib.saturating_mul(1024))
}
