//! The process in the background.
//!
//! A fork would carry over one thread of many, so the program starts itself anew with the same
//! arguments. The new process has a pipe for its standard output: one byte on it says that the mount
//! answers. Until then its errors go to the caller's standard error like those of any command; if it
//! ends without the byte, its exit code becomes the caller's.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::failed;
use crate::error::{Failure, Result};
use crate::exit::Exit;

/// Says to the new process whose child it is. A variable left over from elsewhere names another.
const PARENT: &str = "FORERUN_MOUNT_PARENT";
const READY: &[u8] = b".";

/// Whether this is the process in the background.
pub fn is_child() -> bool {
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
    parent.is_some() && std::env::var(PARENT).ok() == parent
}

/// Starts it, and returns when its mount answers, or it has failed.
pub fn start() -> Result {
    let mut child = command(program())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed("starting the process that serves the mount", &error))?;
    let mut answer = [0];
    if let Some(mut pipe) = child.stdout.take()
        && pipe.read_exact(&mut answer).is_ok()
    {
        return Ok(Exit::Ok);
    }
    let status = child.wait();
    let status =
        status.map_err(|error| failed("waiting for the process in the background", &error))?;
    if let Some(signal) = status.signal() {
        let message = format!("the process that was to serve the mount died of signal {signal}");
        return Err(Failure::new(Exit::Mount, "mount", message));
    }
    // It has said itself what was wrong.
    let all = [
        Exit::Image,
        Exit::Usage,
        Exit::Format,
        Exit::Source,
        Exit::Output,
    ];
    let same = all
        .into_iter()
        .find(|exit| Some(i32::from(exit.code())) == status.code());
    Ok(same.unwrap_or(Exit::Mount))
}

/// `program` with the arguments of this process, as its child in the background.
pub fn command(program: PathBuf) -> Command {
    let mut argv = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = argv.next() {
        // mount(8)'s helper is told by its name.
        command.arg0(name);
    }
    command
        .args(argv)
        .env(PARENT, std::process::id().to_string());
    command
}

/// What lies where this program was started from: after an upgrade, the new one.
pub fn newest_program() -> PathBuf {
    let Ok(itself) = std::env::current_exe() else {
        return program();
    };
    // The system's mark of a file that is there no more.
    let named = itself.as_os_str().as_bytes();
    let named = named.strip_suffix(b" (deleted)").unwrap_or(named);
    let named = PathBuf::from(OsStr::from_bytes(named));
    match named.is_file() {
        true => named,
        false => program(),
    }
}

/// This program, by a path that keeps its name in the list of processes if it still leads here.
pub fn program() -> PathBuf {
    let itself = PathBuf::from("/proc/self/exe");
    let named = std::env::current_exe().ok().filter(|path| path.is_file());
    named.unwrap_or(itself)
}

/// Leaves the caller's terminal and process group: Ctrl-C there is not meant for us.
pub fn become_session_leader() -> Result<()> {
    let session = rustix::process::setsid();
    session.map_err(|error| failed("starting a session", &error.into()))?;
    Ok(())
}

/// Tells the caller that the mount answers, and lets go of whatever could be in its way: the
/// directory we were started in, and the three standard files.
pub fn ready(log: Option<File>) -> Result<()> {
    settle(log, true)
}

/// The same for a mount that was taken over, which stays whether or not anybody listens.
pub fn ready_to_go_on(log: Option<File>) -> Result<()> {
    settle(log, false)
}

/// Lets go of the old process's pipe, which ends with it.
pub fn settle_stderr(log: Option<&File>) {
    let null = File::options().write(true).open("/dev/null");
    let redirected = match (log, &null) {
        (Some(file), _) | (None, Ok(file)) => rustix::stdio::dup2_stderr(file),
        (None, Err(_)) => Ok(()),
    };
    if let Err(error) = redirected {
        tracing::warn!("redirecting standard error: {error}");
    }
}

fn settle(log: Option<File>, caller_is_needed: bool) -> Result<()> {
    let redirecting = |error: rustix::io::Errno| failed("redirecting output", &error.into());
    let null = File::options().read(true).write(true).open("/dev/null");
    let null = null.map_err(|error| failed("/dev/null", &error))?;
    std::env::set_current_dir("/").map_err(|error| failed("changing to /", &error))?;
    rustix::stdio::dup2_stderr(log.as_ref().unwrap_or(&null)).map_err(redirecting)?;
    let mut stdout = std::io::stdout();
    // A caller that is gone was interrupted, and wants no mount: the error unmounts.
    let told = stdout.write_all(READY).and_then(|()| stdout.flush());
    match told {
        Err(error) if !caller_is_needed => {
            tracing::debug!("nobody waits for the new process: {error}")
        }
        told => told.map_err(|error| failed("telling the caller", &error))?,
    }
    rustix::stdio::dup2_stdout(&null).map_err(redirecting)?;
    Ok(())
}
