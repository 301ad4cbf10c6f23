//! Runs, times and finds other programs, takes turns between them, and empties caches before each
//! measurement.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// Runs a program and returns its standard output. If it fails, the error contains its standard
/// error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{said}",
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub fn timed(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    output(command)?;
    Ok(start.elapsed().as_secs_f64())
}

/// Returns the first line that a program prints, whatever its exit status, or `None` if it is not
/// installed.
pub fn first_line(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = [output.stderr, output.stdout].concat();
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| !line.is_empty()).map(str::to_string)
}

/// Writes dirty data back, and empties all caches.
pub fn drop_caches() -> Result<()> {
    output(&mut Command::new("sync"))?;
    fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches")
}

/// Removes a file or directory, if it exists.
pub fn remove(path: &Path) -> Result<()> {
    output(Command::new("rm").arg("-rf").arg(path)).map(drop)
}

/// Returns whether all programs are installed, and reports those that are not.
pub fn has(programs: &[&str]) -> bool {
    let lacks = |name: &&&str| {
        let mut which = Command::new("sh");
        which.args(["-c", "command -v \"$0\""]).arg(name);
        which.output().is_ok_and(|output| !output.status.success())
    };
    let missing: Vec<&str> = programs.iter().filter(lacks).copied().collect();
    if !missing.is_empty() {
        eprintln!("left out: rows that need {}", missing.join(", "));
    }
    missing.is_empty()
}

/// Runs both once per round. Returns the seconds of each. Every second round reverses their order,
/// so that a slow minute of the machine, and the state in which one leaves it, affect both.
pub fn turns(
    what: &str,
    rounds: usize,
    mut ours: impl FnMut() -> Result<f64>,
    mut theirs: impl FnMut() -> Result<f64>,
) -> Result<[Vec<f64>; 2]> {
    let mut seconds = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        eprintln!("{what}: round {} of {rounds}", round + 1);
        if round % 2 == 0 {
            seconds[0].push(ours()?);
            seconds[1].push(theirs()?);
        } else {
            seconds[1].push(theirs()?);
            seconds[0].push(ours()?);
        }
    }
    Ok(seconds)
}
