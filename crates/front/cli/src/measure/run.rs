//! The result of a run: its time, the counters of forerun, and the memory it took.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::fs::{Advice, MemfdFlags, fadvise, memfd_create};

use super::active::{self, spawn, temp_dir};
use super::process;

/// The counters that forerun prints with `--stats`, by name.
pub type Counters = BTreeMap<String, u64>;

#[derive(Clone, Debug, Default)]
pub struct Run {
    pub seconds: f64,
    /// The counters of forerun; empty for other programs.
    pub counters: Counters,
    /// Peak memory of the daemon or program, in bytes.
    pub peak: Option<u64>,
    /// The data that was found. All drivers must find the same.
    pub found: String,
}

pub fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let start = Instant::now();
    let done = work()?;
    Ok((start.elapsed().as_secs_f64(), done))
}

/// Drops an image from the page cache, and all files below `objects`. What was written before, such
/// as an extracted tree, is written to disk first. The rest of the machine keeps its caches.
pub fn drop_caches(image: &Path, objects: Option<&Path>) -> Result<()> {
    rustix::fs::syncfs(File::open(active::home())?)?;
    objects.map_or(Ok(()), drop_pages)?;
    drop_pages(image)
}

fn drop_pages(path: &Path) -> Result<()> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    if file.metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() || kind.is_file() {
                drop_pages(&entry.path())?;
            }
        }
        return Ok(());
    }
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// Lists a tree with everything that `ls -l` shows. `ls` writes to memory, because a reader of a
/// pipe would take a processor from the measured driver.
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

/// Loads a program into memory, because loading it is not measured.
pub fn load(program: impl AsRef<OsStr>, arguments: &[&str]) {
    let mut command = Command::new(program);
    // Some programs have no arguments with which they succeed.
    let _loaded = process::collect(command.args(arguments).stdin(Stdio::null()));
}

/// Runs a program to its end and watches its memory. The program prints its findings, and its
/// counters on standard error.
pub fn watched(command: &mut Command) -> Result<Run> {
    let dir = temp_dir()?;
    let paths = ["found", "counters"].map(|name| dir.path().join(name));
    command.stdin(Stdio::null());
    command
        .stdout(File::create(&paths[0])?)
        .stderr(File::create(&paths[1])?);
    let start = Instant::now();
    let mut child = spawn(command).with_context(|| process::describe(command))?;
    let id = child.id();
    // The high-water mark only grows, so only growth in the last moments is missed.
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
    let [stdout, stderr] = paths.map(|path| fs::read(path).unwrap_or_default());
    let output = process::successful(
        command,
        Output {
            status,
            stdout,
            stderr,
        },
    )?;
    Ok(Run {
        seconds,
        counters: parse(&String::from_utf8_lossy(&output.stderr)),
        peak,
        found: String::from_utf8_lossy(&output.stdout).trim().to_string(),
    })
}

/// Returns the peak memory of a process in bytes, or `None` if it has ended.
pub fn peak_of(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mut lines = status.lines();
    let peak = lines.find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = peak.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Parses lines with a name and a number, which may have commas and be followed by a size, as in
/// `source_bytes 4,096 (4.0 KiB)`. Skips other lines.
pub fn parse(log: &str) -> Counters {
    log.lines().filter_map(counter).collect()
}

fn counter(line: &str) -> Option<(String, u64)> {
    let mut words = line.split_whitespace();
    let (name, value) = (words.next()?, words.next()?);
    let is_name = name
        .bytes()
        .all(|byte| byte == b'_' || byte.is_ascii_lowercase());
    let is_last = match words.next() {
        None => true,
        Some(size) => size.starts_with('(') && line.ends_with(')'),
    };
    let value = value.replace(',', "").parse().ok()?;
    (is_name && is_last).then(|| (name.to_string(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_stand_among_other_lines() {
        let counters = parse(
            "mounted at 12\nsource_requests     17\nsource_bytes 1,234,567  (1.2 MiB)\nx y\n3 4\n\
             fuse_lookup 5\nwaited 3 times\n",
        );
        assert_eq!(counters.len(), 3, "{counters:?}");
        assert_eq!(counters["source_requests"], 17);
        assert_eq!(counters["source_bytes"], 1_234_567);
        assert_eq!(counters["fuse_lookup"], 5);
    }
}
