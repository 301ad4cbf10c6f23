//! `forerun mount IMAGE DIR -- CMD`: a mount for as long as a command runs.
//!
//! Background processes make the mount as usual, and do not know about the command.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};

use forerun_fuse::Unmounter;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{MountArgs, failed};
use crate::context::Context;
use crate::error::{Failure, Result, reason};
use crate::exit::Exit;
use crate::inherited;
use crate::umount::{self, UmountArgs};

/// Exit codes of shells for a command that cannot be run or does not exist.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

pub fn run(context: &Context, args: &MountArgs, program: &OsStr, words: &[OsString]) -> Result {
    let options = super::parse_options(context, args)?.options;
    if options.remount {
        return Err(Failure::usage(
            "remount changes a mount, and cannot run a command",
        ));
    }
    // Handlers are installed before mounting, so that a signal in between does not leave the mount
    // behind.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGCHLD]);
    let mut signals = signals.map_err(|error| failed("handling signals", &error))?;
    match super::mount(context, args)? {
        Exit::Ok => {}
        exit => return Ok(exit),
    }
    let is_asked_to_end = signals.pending().any(|signal| signal != SIGCHLD);
    let ended = if is_asked_to_end {
        Ok(Exit::Interrupted)
    } else {
        run_command(program, words, &mut signals)
    };
    let exit = ended.unwrap_or_else(|failure| context.report(&failure));
    Ok(exit.and(unmount(context, args)?))
}

/// Starts a thread that unmounts when the caller has ended, because a killed caller has not
/// unmounted. Open files are served until they are closed.
pub fn end_with(caller: OwnedFd, unmounter: Unmounter) -> Result<()> {
    let thread = std::thread::Builder::new().name("caller".to_string());
    let watching = thread.stack_size(128 << 10).spawn(move || {
        let mut caller = [PollFd::new(&caller, PollFlags::IN)];
        while let Err(Errno::INTR) = poll(&mut caller, None) {}
        if let Err(error) = unmounter.unmount() {
            tracing::error!("{error}");
        }
    });
    watching.map_err(|error| failed("watching the caller", &error))?;
    Ok(())
}

/// Unmounts. Processes that the command left running keep their open files.
fn unmount(context: &Context, args: &MountArgs) -> Result {
    let options = |lazy| UmountArgs {
        lazy,
        force: false,
        dead: false,
        dirs: vec![args.dir.clone()],
    };
    match umount::unmount(&args.dir, &options(false)) {
        Ok(()) => Ok(Exit::Ok),
        Err(_) => umount::run(context, &options(true)),
    }
}

fn run_command(program: &OsStr, words: &[OsString], signals: &mut Signals) -> Result {
    let started = inherited::pass_on(|| Command::new(program).args(words).spawn());
    let mut child = started.map_err(|error| {
        let code = match error.kind() {
            ErrorKind::NotFound => NOT_FOUND,
            _ => CANNOT_RUN,
        };
        let failure = Failure::new(Exit::OfCommand(code), "command", reason(&error));
        failure.of(program.display())
    })?;
    loop {
        let status = child.try_wait();
        if let Some(status) = status.map_err(|error| failed("waiting for the command", &error))? {
            return Ok(Exit::OfCommand(code(status)));
        }
        for signal in signals.wait() {
            if signal != SIGCHLD && !(signal == SIGINT && is_in_foreground()) {
                pass_on(signal, &child);
            }
        }
    }
}

/// Returns whether this process and its command are in the foreground of a terminal. If so, the
/// command has already received Ctrl-C.
fn is_in_foreground() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}

fn pass_on(signal: i32, child: &Child) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        // The command was not waited for since it was seen running, so its id was not reused.
        let _has_ended = kill_process(Pid::from_child(child), signal);
    }
}

fn code(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| signal + 128);
    let code = status.code().or(signal).unwrap_or(1);
    u8::try_from(code).unwrap_or(u8::MAX)
}
