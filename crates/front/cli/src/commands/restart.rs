//! `forerun restart`: replaces the process that serves a mount.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueHint};
use forerun_fuse::MountEntry;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{Failure, Result, reason};
use crate::exit::Exit;
use crate::json::{number, text};
use crate::output::Output;
use crate::socket::{StatusAnswer, ask, ask_all};

/// Longer than the old process waits for the new one.
const RESTART_TIMEOUT: Duration = Duration::from_secs(150);
/// The text that the new process writes once it serves the mount.
const DONE: &str = ".";

/// Have a mount served by a new process, without unmounting it
///
/// The new process is the program that is installed now, with the options of the mount. Programs
/// that use the mount go on: open files stay open, and what they wait for they get. If the new
/// process cannot serve the mount, the old one goes on. Takes Linux 6.9 or later.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun restart /mnt                after an upgrade of forerun
  forerun status                      which process serves which mount")]
pub struct RestartArgs {
    /// Where it is mounted
    #[arg(required = true, value_hint = ValueHint::DirPath)]
    pub dirs: Vec<PathBuf>,
}

/// Restarts all of them, as far as possible.
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

/// Restarts the mount on `dir`, and returns the number of the new process.
fn restart(dir: &Path) -> Result<u64> {
    let entry = entry(dir)?;
    let path = entry.mount_point.display().to_string();
    let (major, minor) = entry.device;
    let device = format!("{major}:{minor}");
    let all = ask_all();
    if forerun_kernel::is_ours(&entry.fstype, &entry.source) {
        let mut all = all.iter();
        return Err(failure(
            match all.any(|told| text(&told.mount, "device") == device) {
                true => "the kernel serves it; the process that fetches for it cannot be replaced",
                false => "the kernel serves it, and no process",
            },
        ));
    }
    for old in all.iter().filter(|old| text(&old.mount, "dir") == path) {
        let answer = ask(&old.socket, &device, RESTART_TIMEOUT);
        let answer = answer.map_err(|error| failure(format!("its process: {}", reason(&error))))?;
        match answer.as_str() {
            "another mount" => {}
            DONE => return new_process(&path, old),
            "" => return Err(failure("its process has ended").hint(remount(dir))),
            why => return Err(failure(why)),
        }
    }
    let failure = failure("no process of yours serves it");
    Err(failure.hint(format!(
        "{}; forerun status lists those there are",
        remount(dir)
    )))
}

/// Finds the mount on `dir`, if it is one of forerun's.
fn entry(dir: &Path) -> Result<MountEntry> {
    let entry = forerun::mount_at(dir).map_err(|error| failure(reason(&error)))?;
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

/// Finds the process that has taken over from `old`.
fn new_process(path: &str, old: &StatusAnswer) -> Result<u64> {
    let all = ask_all();
    let new = all
        .iter()
        .find(|new| text(&new.mount, "dir") == path && new.socket != old.socket);
    let new = new.ok_or_else(|| failure("its new process does not tell of itself"))?;
    Ok(number(&new.mount, "pid"))
}

fn remount(dir: &Path) -> String {
    let dir = dir.display();
    format!("unmount it and mount it again: forerun umount {dir}")
}

fn failure(message: impl Into<String>) -> Failure {
    Failure::new(Exit::Mount, "restart", message)
}
