//! Process 1 of a run: builds the root directory, starts the command, and waits for its end.
//!
//! The kernel ends every process of a PID namespace with its process 1. Signals that process 1 does
//! not handle do not reach it, including those of a terminal, so Ctrl-C ends only the command.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use forerun_fuse::{Abort, Channel};
use nix::sched::{CloneFlags, unshare};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, wait};
use signal_hook::consts::SIGCHLD;

use crate::args::Global;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;

use super::command::Becoming;
use super::ids::is_root_of_system;
use super::plan::RunPlan;
use super::{failed, namespace_failure, root};

/// The exit status after SIGKILL, as in shells.
const KILLED: u8 = 128 + 9;

pub fn run_init(words: &[OsString]) -> ExitCode {
    let context = Context::new(Global::default());
    let ended = run(words);
    let exit = ended.unwrap_or_else(|failure| context.report(&failure));
    ExitCode::from(exit.code())
}

fn run(words: &[OsString]) -> Result {
    let plan = RunPlan::from_words(words.iter().cloned()).filter(|_| getpid() == Pid::INIT);
    let plan =
        plan.ok_or_else(|| Failure::usage("process 1 of a run was started by another program"))?;
    let talking = |error: io::Error| failed("the process that serves the image", &error);
    let socket = io::stdin().as_fd().try_clone_to_owned();
    let channel = Channel::from(socket.map_err(talking)?);
    leave_namespaces()?;
    let starting = |error| failed("starting the command", &error);
    let becoming = Becoming::start(&plan)?;
    let place = root::prepare(&plan)?;
    let Some(received) = channel.receive().map_err(talking)? else {
        // The command's process has reported the reason.
        return Ok(Exit::OfCommand(KILLED));
    };
    let [mount, stdin] = <[OwnedFd; 2]>::try_from(received.descriptors)
        .map_err(|_| talking(io::ErrorKind::InvalidData.into()))?;
    becoming.wait_until_loaded().map_err(starting)?;
    root::enter(&plan, place, mount)?;
    let (children, notice) = UnixStream::pair().map_err(talking)?;
    signal_hook::low_level::pipe::register(SIGCHLD, notice).map_err(talking)?;
    children.set_nonblocking(true).map_err(talking)?;
    let command = becoming.finish(stdin).map_err(starting)?;
    watch(command, &channel, children).map_err(talking)
}

/// Leaves the mount namespace to the serving process. The system's root also leaves its IPC
/// namespace, whose shared memory and queues it could use without a capability.
fn leave_namespaces() -> Result<()> {
    let mut left = CloneFlags::CLONE_NEWNS;
    if is_root_of_system().map_err(|error| failed("process 1", &error))? {
        left |= CloneFlags::CLONE_NEWIPC;
    }
    unshare(left).map_err(|error| namespace_failure("making a mount namespace", &error.into()))
}

/// Waits for the end of the command, passes signals on to it, and reaps orphans.
fn watch(command: Pid, channel: &Channel, mut children: UnixStream) -> io::Result<Exit> {
    let (mut lifeline, mut abort): (Option<OwnedFd>, Option<Abort>) = (None, None);
    loop {
        while let Some((pid, status)) = ended()? {
            if pid == command {
                return Ok(Exit::OfCommand(code(status)));
            }
        }
        let mut fds = vec![
            PollFd::new(channel, PollFlags::IN),
            PollFd::new(&children, PollFlags::IN),
        ];
        fds.extend(
            lifeline
                .as_ref()
                .map(|pipe| PollFd::new(pipe, PollFlags::IN)),
        );
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_told = !fds[0].revents().is_empty();
        if fds.get(2).is_some_and(|pipe| !pipe.revents().is_empty()) {
            // The server is dead, although one of its threads may hold its socket open.
            if let Some(abort) = abort {
                abort.abort()?;
            }
            return Ok(Exit::OfCommand(KILLED));
        }
        let mut noticed = [0; 64];
        while matches!(children.read(&mut noticed), Ok(1..)) {}
        if is_told {
            let Some(told) = channel.receive()? else {
                // Without a server, the files of the image are gone.
                return Ok(Exit::OfCommand(KILLED));
            };
            let mut descriptors = told.descriptors.into_iter();
            if let Some(pipe) = descriptors.next() {
                lifeline = Some(pipe);
                abort = descriptors.next().map(Abort::inherited);
            }
            for number in told.text {
                if let Some(signal) = Signal::from_named_raw(number.into()) {
                    // The command was not waited for since it was seen running, so its id was not
                    // reused.
                    let _has_ended = kill_process(command, signal);
                }
            }
        }
    }
}

/// Returns a child that has ended, or `None` if all run or there is none.
fn ended() -> io::Result<Option<(Pid, WaitStatus)>> {
    match wait(WaitOptions::NOHANG) {
        Err(Errno::CHILD) => Ok(None),
        Err(Errno::INTR) => ended(),
        waited => Ok(waited?),
    }
}

fn code(status: WaitStatus) -> u8 {
    let signal = status.terminating_signal().map(|signal| signal + 128);
    let code = status.exit_status().or(signal).unwrap_or(1);
    u8::try_from(code).unwrap_or(u8::MAX)
}
