//! Process 1 of a run, as the serving process sees it.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::{io, process, thread};

use forerun_fuse::{Abort, Channel};
use nix::sched::{CloneFlags, unshare};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{SIGCHLD, SIGINT, SIGQUIT};
use signal_hook::iterator::Signals;

use crate::error::Result;
use crate::inherited;
use crate::mount::program;
use crate::role::{self, Role};

use super::plan::RunPlan;
use super::{failed, namespace_failure};

/// Process 1. Dropping it ends it, and with it all processes in its PID namespace.
pub struct Child {
    process: process::Child,
    /// Closing it ends process 1.
    channel: Option<Channel>,
    /// Opened early, because the sandbox forbids opening it later.
    terminal: Option<File>,
}

impl Child {
    /// Starts process 1 in a PID namespace. It waits for [`begin`](Self::begin).
    pub fn start(plan: &RunPlan) -> Result<Self> {
        let starting = |error: io::Error| failed("starting process 1", &error);
        let (channel, theirs) = Channel::pair().map_err(starting)?;
        let mut command = Command::new(program());
        let title = format!("process 1 of a command in {}", plan.name);
        role::assign(&mut command, Role::RunInit, &title);
        command
            .args(plan.words())
            .stdin(Stdio::from(OwnedFd::from(theirs)));
        // A thread that has entered a PID namespace for its children can start no more threads.
        // This thread starts a process and ends.
        let spawned = thread::scope(|scope| {
            let spawn = || {
                unshare(CloneFlags::CLONE_NEWPID)
                    .map_err(|error| namespace_failure("making a PID namespace", &error.into()))?;
                inherited::pass_on(|| command.spawn()).map_err(starting)
            };
            let thread = thread::Builder::new().spawn_scoped(scope, spawn);
            let joined = thread.map_err(starting)?.join();
            joined.unwrap_or_else(|_| Err(starting(io::Error::other("a thread has failed"))))
        });
        Ok(Self {
            process: spawned?,
            channel: Some(channel),
            terminal: File::open("/dev/tty").ok(),
        })
    }

    /// Tells process 1 to run the command on top of this mount.
    pub fn begin(&self, mount: BorrowedFd<'_>) -> Result<()> {
        let stdin = io::stdin();
        let descriptors = [mount, stdin.as_fd()];
        let sent = self.channel.iter();
        let mut sent = sent.map(|channel| channel.send(b"begin", &descriptors));
        match sent.next() {
            Some(Err(error)) if !has_ended(&error) => Err(failed("passing the mount on", &error)),
            // Process 1 has ended, and its status says why.
            Some(_) | None => Ok(()),
        }
    }

    /// Lets process 1 abort the FUSE connection once this process is dead. Otherwise a thread that
    /// waits for an answer would hang, and the command with it.
    pub fn watch_over(&self, abort: Option<Abort>) -> Result<()> {
        let watching = |error: io::Error| failed("being watched by process 1", &error);
        let lifeline = forerun_fuse::lifeline().map_err(watching)?;
        let descriptors = std::iter::once(lifeline.as_fd());
        let descriptors: Vec<_> = descriptors.chain(abort.as_ref().map(AsFd::as_fd)).collect();
        let sent = self.channel.as_ref();
        match sent.map(|channel| channel.send(&[0], &descriptors)) {
            Some(Err(error)) if !has_ended(&error) => Err(watching(error)),
            // Process 1 has ended, and its status says why.
            Some(_) | None => Ok(()),
        }
    }

    /// Waits for the end of process 1, and passes signals on to it. Returns the exit status of the
    /// command.
    pub fn wait(&mut self, signals: &mut Signals) -> Result<u8> {
        let waiting = |error: io::Error| failed("waiting for process 1", &error);
        loop {
            if let Some(status) = self.process.try_wait().map_err(waiting)? {
                return Ok(code(status));
            }
            for signal in signals.wait() {
                let is_typed = [SIGINT, SIGQUIT].contains(&signal) && self.is_in_foreground();
                if let (Ok(number), Some(channel)) = (u8::try_from(signal), &self.channel)
                    && signal != SIGCHLD
                    && !is_typed
                {
                    // Process 1 has ended, and is waited for next.
                    let _sent = rustix::io::write(channel, &[number]);
                }
            }
        }
    }
}

impl Child {
    /// Returns whether this process and its command are in the foreground of a terminal. If so, the
    /// command has already received signals from the keyboard.
    fn is_in_foreground(&self) -> bool {
        let group = self
            .terminal
            .as_ref()
            .and_then(|terminal| tcgetpgrp(terminal).ok());
        group == Some(getpgrp())
    }
}

/// Returns whether the other end of a socket is closed. Linux reports ECONNRESET if it was closed
/// with an unread message.
pub(super) fn has_ended(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.channel.take());
        let _status = self.process.wait();
    }
}

fn code(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| signal + 128);
    let code = status.code().or(signal).unwrap_or(1);
    u8::try_from(code).unwrap_or(u8::MAX)
}
