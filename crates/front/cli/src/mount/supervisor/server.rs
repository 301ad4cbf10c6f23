//! A process that serves a mount, as its supervisor sees it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use forerun_fuse::{Channel, FromServer, FromSupervisor, Kept, MountNamespace};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::super::daemon;

/// How long a process may take to exit after its lifeline closed.
const SOON: Duration = Duration::from_millis(50);

pub struct Origin {
    /// The directory to which names on the command line are relative.
    pub directory: PathBuf,
    /// The mount namespace of the mount. Set if the supervisor runs in a copy of it.
    pub namespace: Option<MountNamespace>,
}

impl Origin {
    /// Records the mount namespace in `kept`. The mount may have ended meanwhile, with its
    /// namespace.
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
    /// Readable when the process is dying. One of its threads may hang in the kernel until the
    /// mount is served again, and the socket closes only with the last thread.
    pub lifeline: Option<OwnedFd>,
    /// Readable when all threads have ended. `None` before Linux 5.3.
    whole: Option<OwnedFd>,
}

impl Process {
    /// Starts the process that makes the mount, with the standard files of this process.
    pub fn first(origin: &Origin) -> io::Result<Self> {
        let process = Self::start(origin, Stdio::inherit(), Stdio::inherit())?;
        FromSupervisor::make(&process.channel)?;
        Ok(process)
    }

    /// Starts the currently installed program with the arguments of this process.
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

    /// Returns the descriptors to poll. They are readable when the process sends a message or ends.
    /// A process that `lingers` is watched until all its threads have ended, because its socket may
    /// have closed before.
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

    /// Returns the event of a readable descriptor of [`signs`](Self::signs).
    pub fn happened(&self, lingers: bool, sign: usize) -> FromServer {
        match (lingers, sign) {
            (false, 0) => self.said(),
            _ => FromServer::End,
        }
    }

    /// Receives the next message. An invalid message kills the process and counts as its end.
    fn said(&self) -> FromServer {
        FromServer::receive(&self.channel).unwrap_or_else(|error| {
            tracing::error!("the process that serves the mount: {error}");
            self.kill(Signal::KILL);
            FromServer::End
        })
    }

    pub fn kill(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // The process is a child that was not waited for, so its id was not reused.
            let _ended_already = kill_process(pid, signal);
        }
    }

    /// Returns the exit status, if the process has ended or does so soon.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.ended_within(SOON)
    }

    /// Waits at most `patience`. Returns the exit status if the process has ended.
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

    pub fn wait(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    pub const fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}
