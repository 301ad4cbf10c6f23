//! A process that serves a mount, as its keeper sees it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};

use forerun_fuse::{Channel, FromKeeper, FromServer};
use rustix::process::{Pid, Signal, kill_process};

use super::super::daemon;

/// A server or a successor.
pub struct Process {
    child: Child,
    /// The keeper's end of the socket.
    pub channel: Channel,
}

impl Process {
    /// Starts the process that makes the mount, with the standard files of this one.
    pub fn first(directory: &Path) -> io::Result<Self> {
        let process = Self::start(directory, Stdio::inherit(), Stdio::inherit())?;
        FromKeeper::make(&process.channel)?;
        Ok(process)
    }

    /// Starts a process with the arguments of this one and the program that is installed now.
    pub fn start(directory: &Path, stdout: Stdio, stderr: Stdio) -> io::Result<Self> {
        let (channel, theirs) = Channel::pair()?;
        let (mut command, secrets) = daemon::server_command()?;
        let child = command
            .current_dir(directory)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(stdout)
            .stderr(stderr)
            .spawn()?;
        drop(secrets);
        Ok(Self { child, channel })
    }

    /// Returns what it says next; what cannot be understood is its end, which is brought about.
    pub fn said(&self) -> FromServer {
        FromServer::receive(&self.channel).unwrap_or_else(|error| {
            tracing::error!("the process that serves the mount: {error}");
            self.kill(Signal::KILL);
            FromServer::End
        })
    }

    /// Sends it a signal.
    pub fn kill(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It is a child that was not waited for, so the number is still its own.
            let _ended_already = kill_process(pid, signal);
        }
    }

    /// Returns how it ended, when it has.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// The process itself.
    pub const fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}
