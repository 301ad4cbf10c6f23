//! `forerun restart`: replaces the process that serves a mount.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueHint};
use forerun_sys::mount_table::MountEntry;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{Failure, Result, reason};
use crate::exit::Exit;
use crate::json::{number, text};
use crate::output::Output;
use crate::socket::{ANSWER_TIMEOUT, Silent, StatusAnswer, ask, ask_all};

/// Longer than the old process waits for the new one.
const RESTART_TIMEOUT: Duration = Duration::from_secs(150);
/// The new process writes this once it serves the mount.
const DONE: &str = ".";

/// Replace the process that serves a mount, without unmounting it
///
/// The new process runs the program that is installed now, with the options of the mount. Programs
/// that use the mount keep running: open files stay open, and pending requests are answered. If the
/// new process cannot serve the mount, the old one continues. Restarting needs Linux 6.9 or later.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun restart /mnt                after an upgrade of forerun
  forerun status                      show which process serves which mount")]
pub struct RestartArgs {
    /// Mount point
    #[arg(required = true, value_hint = ValueHint::DirPath)]
    pub dirs: Vec<PathBuf>,
}

pub fn run(context: &Context, args: &RestartArgs) -> Result {
    let mut exit = Exit::Ok;
    let mut done = Vec::new();
    for dir in &args.dirs {
        match restart(dir) {
            Ok(pid) => {
                context.note(&format!("{}: served by process {pid}", dir.display()));
                done.push(json!({ "dir": dir.display().to_string(), "pid": pid }));
            }
            Err(failure) => exit = exit.and(context.report(&failure.of(dir.display()))),
        }
    }
    if context.global.json {
        let mut out = Output::stdout()?;
        out.json(&Value::from(done))?;
        out.finish()?;
    }
    Ok(exit)
}

/// Restarts the mount on `dir`. Returns the id of the new process.
fn restart(dir: &Path) -> Result<u64> {
    let entry = entry(dir)?;
    if forerun_kernel::is_ours(&entry.fstype, &entry.source) {
        return Err(failure("the kernel serves it without a process of forerun"));
    }
    let path = entry.mount_point.display().to_string();
    let (major, minor) = entry.device;
    let device = format!("{major}:{minor}");
    let asked = ask_all(ANSWER_TIMEOUT);
    let all = &asked.answers;
    for old in all.iter().filter(|old| text(&old.mount, "dir") == path) {
        let answer = ask(&old.socket, &device, RESTART_TIMEOUT);
        let answer = answer.map_err(|error| failure(format!("its process: {}", reason(&error))))?;
        match answer.as_str() {
            "another mount" => {}
            DONE => return new_process(&path, &device, old),
            "" => return Err(failure("its process has ended").hint(remount(dir))),
            why => return Err(failure(why)),
        }
    }
    Err(unserved(dir, &device, &asked.silent))
}

/// Returns the failure for a mount for which no process answered. `silent` are the processes that
/// did not answer in time.
fn unserved(dir: &Path, device: &str, silent: &[Silent]) -> Failure {
    let seconds = ANSWER_TIMEOUT.as_secs();
    let again =
        "if the process is stopped, continue it with kill -CONT; on a busy machine, try again";
    let mut known = silent.iter();
    if let Some(process) = known.find(|process| process.serves(device) == Some(true)) {
        let pid = process.pid;
        return failure(format!(
            "process {pid}, which serves it, has not answered for {seconds} s"
        ))
        .hint(again);
    }
    let mut unknown = silent.iter();
    if let Some(process) = unknown.find(|process| process.serves(device).is_none()) {
        let pid = process.pid;
        return failure(format!(
            "no process that answers serves it; process {pid} has not answered for {seconds} s, and may"
        ))
        .hint(again);
    }
    failure("no process of yours serves it")
        .hint(format!("{}; forerun status lists the mounts", remount(dir)))
}

/// Finds the mount on `dir`. Fails if it is not one of forerun's.
fn entry(dir: &Path) -> Result<MountEntry> {
    let entry = forerun_sys::mountpoint::mount_at(dir).map_err(|error| failure(reason(&error)))?;
    let Some(entry) = entry else {
        return Err(failure("nothing is mounted there"));
    };
    let is_ours = forerun_kernel::is_ours(&entry.fstype, &entry.source);
    if !is_ours && !entry.fstype.starts_with("fuse") {
        let fstype = entry.fstype;
        return Err(failure(format!(
            "is a mount of type {fstype}, not one of forerun's"
        )));
    }
    Ok(entry)
}

fn new_process(path: &str, device: &str, old: &StatusAnswer) -> Result<u64> {
    let asked = ask_all(ANSWER_TIMEOUT);
    let is_new = |new: &&StatusAnswer| text(&new.mount, "dir") == path && new.socket != old.socket;
    if let Some(new) = asked.answers.iter().find(is_new) {
        return Ok(number(&new.mount, "pid"));
    }
    let pid = number(&old.mount, "pid");
    let is_its = |new: &&Silent| new.serves(device) == Some(true) && new.pid != pid;
    let silent = asked.silent.iter().find(is_its);
    let silent = silent.ok_or_else(|| failure("its new process does not answer"))?;
    Ok(silent.pid)
}

fn remount(dir: &Path) -> String {
    let dir = dir.display();
    format!("unmount it and mount it again: forerun umount {dir}")
}

fn failure(message: impl Into<String>) -> Failure {
    Failure::new(Exit::Mount, "restart", message)
}
