//! A process that serves a mount, as its supervisor sees it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use forerun_fuse::{Channel, FromServer, FromSupervisor, Kept, MountNamespace};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::super::daemon;

/// How long a process may take to end after its lifeline has.
const SOON: Duration = Duration::from_millis(50);

/// The circumstances that each server of a mount is started in.
pub struct Origin {
    /// Where relative names of the command line begin.
    pub directory: PathBuf,
    /// The mount namespace that has the mount, where the supervisor lives in a copy of it.
    pub namespace: Option<MountNamespace>,
}

impl Origin {
    /// Tells the mount where it was made. A mount may have ended by then, with its namespace.
    pub fn tell(&self, kept: &mut Kept) {
        let joined = self.namespace.as_ref().map(|made| kept.made_in(made));
        if let Some(Err(error)) = joined
            && kept.is_connected()
        {
            tracing::warn!("this process cannot unmount: {error}");
        }
    }
}

/// A server or a successor.
pub struct Process {
    child: Child,
    /// The supervisor's end of the socket.
    pub channel: Channel,
    /// Readable when it is dead. A thread of it may be held up in the kernel until the mount is served again, and the socket
    /// ends with the last one only.
    pub lifeline: Option<OwnedFd>,
    /// Readable when all of it has ended. Nothing before Linux 5.3.
    whole: Option<OwnedFd>,
}

impl Process {
    /// Starts the process that makes the mount, with the standard files of this one.
    pub fn first(origin: &Origin) -> io::Result<Self> {
        let process = Self::start(origin, Stdio::inherit(), Stdio::inherit())?;
        FromSupervisor::make(&process.channel)?;
        Ok(process)
    }

    /// Starts a process with the arguments of this one and the program that is installed now.
    pub fn start(origin: &Origin, stdout: Stdio, stderr: Stdio) -> io::Result<Self> {
        let (channel, theirs) = Channel::pair()?;
        let (mut command, secrets) = daemon::server_command(origin.namespace.as_ref())?;
        let child = command
            .current_dir(&origin.directory)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(stdout)
            .stderr(stderr)
            .spawn()?;
        drop(secrets);
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let whole = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Self {
            child,
            channel,
            lifeline: None,
            whole,
        })
    }

    /// Returns the descriptors to poll: they are readable when it sends a message or ends. One that
    /// `lingers` is watched until all of it has ended, as its socket may have ended before.
    pub fn signs(&self, lingers: bool) -> Vec<BorrowedFd<'_>> {
        let channel = self.channel.as_fd();
        match (lingers, &self.whole) {
            (true, Some(whole)) => vec![whole.as_fd()],
            (true, None) => vec![channel],
            (false, _) => {
                let lifeline = self.lifeline.as_ref().map(AsFd::as_fd);
                std::iter::once(channel).chain(lifeline).collect()
            }
        }
    }

    /// Returns the event, when one of the [`signs`](Self::signs) is readable.
    pub fn happened(&self, lingers: bool, sign: usize) -> FromServer {
        match (lingers, sign) {
            (false, 0) => self.said(),
            _ => FromServer::End,
        }
    }

    /// Returns its next message. One that is not understood counts as the end, and kills the process.
    fn said(&self) -> FromServer {
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

    /// Returns how it ended, if all of it has, or does so soon.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.ended_within(SOON)
    }

    /// Waits at most `patience` for its end. Returns how it ended, if all of it has.
    pub fn ended_within(&mut self, patience: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + patience;
        loop {
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() || Instant::now() > until {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for its end, and returns how it ended.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Returns the process itself.
    pub const fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}
