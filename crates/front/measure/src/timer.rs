//! Time taken by a process that has just started.
//!
//! How the scheduler of Linux places a reader and the threads of its driver depends on the process that started the
//! reader. A tree of an uncompressed EROFS image behind a loop device was read in 0.47 s where a process started the
//! reader that had run for a while, and in 0.40 s where one did that had just started (medians of 40 runs of each in
//! turn, two processors); in 0.46 s where that one slept for a second before. In the short runs reader and driver
//! changed processors five times as often, and the driver's thread waited 0.09 s and not 0.26 s to be woken.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::process;
use crate::run::{Worker, lines, listing, listing_of, read, total};

/// A command that succeeded.
#[derive(Clone, Debug)]
pub struct Timed {
    /// Its wall time.
    pub seconds: f64,
    /// The text that it printed to standard output.
    pub printed: String,
    /// The text that it printed to standard error.
    pub errors: String,
}

impl Worker {
    /// Returns the command of a process that starts `command`, with the same directory and environment. The last line
    /// that it prints is the time, for [`split`].
    fn timer(&self, command: &Command) -> Command {
        let mut timer = self.command(&["time", "--"]);
        timer.arg(command.get_program()).args(command.get_args());
        if let Some(dir) = command.get_current_dir() {
            timer.current_dir(dir);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => timer.env(name, value),
                None => timer.env_remove(name),
            };
        }
        timer
    }

    /// Runs a command by a timer. Its standard output goes to `stdout`, with the time as one more line. Fails unless it
    /// succeeds, with its standard error.
    fn time_to(&self, command: &Command, stdout: Stdio) -> Result<Output> {
        let mut timer = self.timer(command);
        let output = process::collect_errors(timer.stdout(stdout));
        let output = output.with_context(|| process::describe(&timer))?;
        process::successful(&timer, output)
    }

    /// Measures the wall time of a command that reads nothing from its input. Fails unless it succeeds, with its
    /// standard error.
    pub fn time_command(&self, command: &Command) -> Result<Timed> {
        let output = self.time_to(command, Stdio::piped())?;
        let (seconds, printed) = split(&output.stdout)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
        Ok(Timed {
            seconds,
            printed: text(printed),
            errors: text(&output.stderr),
        })
    }

    /// Has this program in memory, so that neither it nor its timer comes from a disk in a run: a timer that waited
    /// for a disk is not one that has just started. The tree of the EROFS image took 0.375 s by such a timer, 0.355 s by
    /// one that was in memory, and 0.354 s by a shell that had just started (medians of 22 runs of each in turn).
    pub fn load(&self) -> Result<()> {
        self.time_command(&self.command(&["nothing"])).map(drop)
    }

    /// Has a process do some work as [`Worker::run`] does, and measures how long it takes, in seconds.
    pub fn time(&self, work: &[&str], path: &Path) -> Result<(f64, String)> {
        let mut command = self.command(work);
        let timed = self.time_command(command.arg(path))?;
        Ok((timed.seconds, timed.printed))
    }

    /// Reads all files as [`Worker::share`] does, and measures how long it takes, in seconds.
    pub fn time_share(&self, path: &Path, processes: u32) -> Result<(f64, String)> {
        let timed = self.time_command(&self.sharing(path, processes))?;
        Ok((timed.seconds, total(&timed.printed)?))
    }

    /// Lists a tree as [`list`](crate::run::list) does, and measures how long it takes, in seconds.
    pub fn time_list(&self, path: &Path) -> Result<(f64, String)> {
        let listing = listing()?;
        self.time_to(&listing_of(path), listing.try_clone()?.into())?;
        let printed = read(&listing)?;
        let (seconds, names) = split(&printed)?;
        Ok((seconds, lines(names)))
    }
}

/// Runs a command and returns the nanoseconds that it took. Fails unless it succeeds.
pub(crate) fn time(words: &[OsString]) -> Result<String> {
    let (program, arguments) = words.split_first().context("no program to time")?;
    let mut command = Command::new(program);
    command.args(arguments);
    let start = Instant::now();
    let status = command.status();
    let taken = start.elapsed();
    let status = status.with_context(|| process::describe(&command))?;
    ensure!(
        status.success(),
        "{}: {status}",
        process::describe(&command)
    );
    Ok(taken.as_nanos().to_string())
}

/// Splits what a timer printed into the seconds of its last line, and what the program printed before.
fn split(printed: &[u8]) -> Result<(f64, &[u8])> {
    let all = printed.strip_suffix(b"\n").unwrap_or(printed);
    let end = all.iter().rposition(|byte| *byte == b'\n');
    let (before, last) = all.split_at(end.map_or(0, |end| end + 1));
    let time = || -> Option<u64> { std::str::from_utf8(last).ok()?.parse().ok() };
    let time = time().with_context(|| format!("no time: {}", String::from_utf8_lossy(last)))?;
    Ok((Duration::from_nanos(time).as_secs_f64(), before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_time() {
        let cases: [(&[u8], f64, &[u8]); 3] = [
            (b"1500000000\n", 1.5, b""),
            (b"2 files\n250000000\n", 0.25, b"2 files\n"),
            (b"\xff\n\n250000000", 0.25, b"\xff\n\n"),
        ];
        for (printed, seconds, before) in cases {
            assert_eq!(split(printed).unwrap(), (seconds, before), "{printed:?}");
        }
        for printed in ["", "2 files\n", "1\n-5\n"] {
            assert!(split(printed.as_bytes()).is_err(), "{printed:?}");
        }
    }

    #[test]
    fn a_run_takes_its_time() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let nanoseconds: u64 = time(&words("sleep 0.05")).unwrap().parse().unwrap();
        assert!(nanoseconds >= 50_000_000, "{nanoseconds}");
        let error = time(&words("false")).unwrap_err();
        assert!(
            error.to_string().starts_with("false: exit status"),
            "{error}"
        );
        let error = time(&words("/no/program")).unwrap_err();
        assert_eq!(error.to_string(), "/no/program");
        assert!(time(&[]).is_err());
    }
}
