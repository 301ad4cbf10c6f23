//! One run of one row by one of the drivers.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use forerun_testkit::temp_dir;

use super::drivers::Mount;
use super::inputs::{self, BIG_LEN, Inputs, MKSQUASHFS};
use super::rows::{Row, Who};
use super::scratch::Scratch;
use crate::bench::caches::drop_all;
use crate::bench::mount::{Counters, parse, peak_of};
use crate::process;

/// What came out of a run.
#[derive(Debug)]
pub struct Run {
    /// Wall time.
    pub seconds: f64,
    /// What forerun counted; nothing of others.
    pub counters: Counters,
    /// The most memory that daemon or program had, in bytes.
    pub peak: Option<u64>,
    /// Length of the image that was made.
    pub made: Option<u64>,
    /// What was found: the same from everybody.
    pub found: String,
}

/// Does it, from cold caches.
pub fn measure(inputs: &Inputs, row: Row, who: Who) -> Result<Run> {
    let run = match row {
        Row::ExtractGzip | Row::ExtractZstd => extract(inputs, row, who),
        Row::Pack => pack(inputs, who),
        Row::CatGzip
        | Row::CatZstd
        | Row::Tree
        | Row::TreeFour
        | Row::Ls
        | Row::LsCached
        | Row::Random => mounted(inputs, row, who),
    };
    run.with_context(|| format!("{}, {who}", row.what()))
}

fn mounted(inputs: &Inputs, row: Row, who: Who) -> Result<Run> {
    let mount = Mount::new(who, &inputs.forerun, &inputs.image(row))?;
    let path = mount.path();
    if row == Row::LsCached {
        list(&path)?;
    } else {
        drop_all()?;
    }
    let start = Instant::now();
    let found = match row {
        Row::CatGzip | Row::CatZstd => cat(&path.join("file"))?,
        Row::Tree => own(&["tree"], &path)?,
        Row::TreeFour => four(&path)?,
        Row::Ls | Row::LsCached => list(&path)?,
        Row::Random => own(&["random"], &path.join("file"))?,
        Row::ExtractGzip | Row::ExtractZstd | Row::Pack => bail!("needs no mount"),
    };
    let seconds = start.elapsed().as_secs_f64();
    if matches!(row, Row::Tree | Row::TreeFour) {
        let expected = format!("{} {}", inputs.tree_files, inputs.tree_bytes);
        ensure!(found == expected, "read {found}, not {expected}");
    }
    let (counters, peak) = mount.finish()?;
    Ok(Run {
        seconds,
        counters,
        peak,
        made: None,
        found,
    })
}

fn cat(path: &Path) -> Result<String> {
    let mut command = Command::new("cat");
    process::run(command.arg(path).stdout(Stdio::null()))?;
    let len = path.metadata()?.len();
    ensure!(len == BIG_LEN, "{} bytes, not {BIG_LEN}", len);
    Ok(len.to_string())
}

/// Some work of this program's own, in a process of its own.
fn own(work: &[&str], path: &Path) -> Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "work"]).args(work).arg(path);
    Ok(process::output(&mut command)?.trim().to_string())
}

/// What users do: `find` names the files, `xargs` has four processes read them.
fn four(path: &Path) -> Result<String> {
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

fn list(path: &Path) -> Result<String> {
    let mut command = Command::new("ls");
    let output = process::output(command.env("LC_ALL", "C").arg("-lR").arg(path))?;
    Ok(format!("{} lines", output.lines().count()))
}

fn extract(inputs: &Inputs, row: Row, who: Who) -> Result<Run> {
    let scratch = Scratch::new(&inputs.dir)?;
    let (image, out) = (inputs.image(row), scratch.path().join("extracted"));
    let mut command = match who {
        Who::Forerun => {
            let mut command = Command::new(&inputs.forerun);
            // Special bits and devices, as unsquashfs makes them for root without being asked.
            command.args([
                "extract",
                "--quiet",
                "--stats",
                "--special-bits",
                "--devices",
            ]);
            command.arg("-C").arg(&out).arg(&image);
            command
        }
        _ => {
            let mut command = Command::new("unsquashfs");
            command.args(["-quiet", "-no-progress", "-dest"]);
            command.arg(&out).arg(&image);
            command
        }
    };
    let mut run = watched(&mut command)?;
    let (files, bytes) = inputs::count(&out)?;
    run.found = format!("{files} {bytes}");
    let expected = format!("{} {}", inputs.tree_files, inputs.tree_bytes);
    ensure!(run.found == expected, "{}, not {expected}", run.found);
    Ok(run)
}

fn pack(inputs: &Inputs, who: Who) -> Result<Run> {
    let out = inputs.dir.join("packed.img");
    remove_file(&out)?;
    let mut command = match who {
        Who::Forerun => {
            let mut command = Command::new(&inputs.forerun);
            command.args(["pack", "--quiet", "--stats", "--format", "squashfs"]);
            command.arg(&inputs.tree).arg(&out);
            command
        }
        _ => {
            let mut command = Command::new("mksquashfs");
            command.arg(&inputs.tree).arg(&out).args(MKSQUASHFS);
            command.args(["-comp", "gzip"]);
            command
        }
    };
    let mut run = watched(&mut command)?;
    run.made = Some(out.metadata()?.len());
    remove_file(&out)?;
    Ok(run)
}

/// Runs to the end, with an eye on its memory.
fn watched(command: &mut Command) -> Result<Run> {
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

fn remove_file(path: &PathBuf) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}
