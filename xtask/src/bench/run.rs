//! Pieces of work that are measured, and what comes out of a run of one.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use forerun_testkit::temp_dir;

use super::caches::drop_all;
use super::mount::{Counters, parse, peak_of};
use super::tree::BIG_LEN;
use crate::process;

/// The result of a run.
#[derive(Debug)]
pub struct Run {
    /// Wall time.
    pub seconds: f64,
    /// The counters of forerun; empty for others.
    pub counters: Counters,
    /// The most memory that daemon or program had, in bytes.
    pub peak: Option<u64>,
    /// Length of the image that was made.
    pub made: Option<u64>,
    /// The data that was found: the same from all drivers.
    pub found: String,
}

/// Reads the large file.
pub fn cat(path: &Path) -> Result<String> {
    let mut command = Command::new("cat");
    process::run(command.arg(path).stdout(Stdio::null()))?;
    let len = path.metadata()?.len();
    ensure!(len == BIG_LEN, "{} bytes, not {BIG_LEN}", len);
    Ok(len.to_string())
}

/// Runs some work of this program's own in a process of its own.
pub fn own(work: &[&str], path: &Path) -> Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "work"]).args(work).arg(path);
    Ok(process::output(&mut command)?.trim().to_string())
}

/// Reads all files as users do: `find` names them, `xargs` has four processes read them.
pub fn four(path: &Path) -> Result<String> {
    const SCRIPT: &str = r#"find . -type f -print0 |
        xargs --null --max-args=250 --max-procs=4 "$0" bench work files"#;
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT]).arg(std::env::current_exe()?);
    let output = process::output(command.current_dir(path))?;
    let (mut files, mut bytes) = (0_u64, 0_u64);
    for line in output.lines() {
        let (more_files, more_bytes) = line.split_once(' ').context("two numbers")?;
        files += more_files.parse::<u64>()?;
        bytes += more_bytes.parse::<u64>()?;
    }
    Ok(format!("{files} {bytes}"))
}

/// Lists a tree with everything that `ls -l` asks for.
pub fn list(path: &Path) -> Result<String> {
    let mut command = Command::new("ls");
    let output = process::output(command.env("LC_ALL", "C").arg("-lR").arg(path))?;
    Ok(format!("{} lines", output.lines().count()))
}

/// Runs to the end, with an eye on its memory.
pub fn watched(command: &mut Command) -> Result<Run> {
    let dir = temp_dir("bench");
    let path = dir.path().join("log");
    let log = File::create(&path)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?);
    drop_all()?;
    let start = Instant::now();
    let child = command.stderr(log).spawn();
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
    let log = fs::read_to_string(&path)?;
    ensure!(
        status.success(),
        "{}: {status}\n{log}",
        process::describe(command)
    );
    Ok(Run {
        seconds,
        counters: parse(&log),
        peak,
        made: None,
        found: String::new(),
    })
}
