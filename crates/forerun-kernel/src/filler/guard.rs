//! The guard: a second process that keeps a mount from showing zeros in place of what was not
//! fetched, when the first one dies.
//!
//! When the last descriptor of a fanotify group is closed, the kernel lets all reads go on, and a
//! sparse file has zeros where nothing was written yet. So two processes hold the group. The guard
//! does nothing as long as the filler lives. If that dies, it fails the reads that wait and all that
//! come, until the filesystem ends. If the guard dies, the filler starts another one. Only somebody
//! who kills both at the same moment gets past that; [`apart`](super::apart) sees to it that this
//! does not happen by the way.
//!
//! It is this same program, executed anew: threads and locks do not survive a fork.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::apart::{self, keep_apart};
use super::channel::{self, Word};
use super::event::Verdict;
use super::group::{answer, fail_all, read};
use super::watch::is_of_nothing;

/// Says to the new process what it is.
const ROLE: &str = "FORERUN_KERNEL_GUARD";
/// Numbers of descriptors that are tried at the most, where a process may have any number of them.
const MOST_DESCRIPTORS: u64 = 1 << 20;

/// How the guard is started: this program with these arguments. It must call [`run_guard`] first.
#[derive(Clone, Debug, Default)]
pub struct GuardArgs {
    /// Arguments for the program, which only what comes before [`run_guard`] needs.
    pub args: Vec<OsString>,
}

/// The guard, as the filler sees it.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    channel: OwnedFd,
}

impl Guard {
    /// Starts it; it holds `descriptors` when this returns: the group, the watch and the mount.
    pub fn start(args: &GuardArgs, descriptors: &[BorrowedFd<'_>; 3]) -> io::Result<Self> {
        let (channel, theirs) = channel::pair()?;
        let mut command = Command::new(program());
        std::os::unix::process::CommandExt::arg0(&mut command, apart::NAME);
        let child = command
            .args(&args.args)
            .env_clear()
            .env(ROLE, "1")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // It holds the other end of the channel until here.
        drop(command);
        let guard = Self { child, channel };
        channel::send(&guard.channel, Word::Hold, descriptors)?;
        match channel::receive(&guard.channel)? {
            Some((Word::Held, _)) => Ok(guard),
            _ => Err(io::Error::other(
                "the process that guards the mount did not start",
            )),
        }
    }

    /// Lets it go, and waits for its end.
    pub fn dismiss(mut self) {
        // If it is dead already, it need not be told.
        let _ = channel::send(&self.channel, Word::Done, &[]);
        let _ = self.child.wait();
    }

    /// Takes what is left of it when it has died.
    pub fn bury(mut self) {
        // It may have closed the channel and live on.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Its process, for tests of its death.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

/// Readable when the guard is gone.
impl AsFd for Guard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// This program, by a path that keeps its name if it still leads here.
fn program() -> PathBuf {
    let itself = PathBuf::from("/proc/self/exe");
    let named = std::env::current_exe().ok().filter(|path| path.is_file());
    named.unwrap_or(itself)
}

/// The whole life of a guard, where this process was started as one: returns its exit code, with
/// which the program is to end. Nothing in all other processes. To be called before anything else.
#[must_use]
pub fn run_guard() -> Option<ExitCode> {
    std::env::var_os(ROLE)?;
    let stdin = io::stdin();
    let code = match guard(stdin.as_fd()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    };
    Some(code)
}

fn guard(channel: BorrowedFd<'_>) -> io::Result<()> {
    // Who ends the filler by its name, its terminal or its session means the filler: it unmounts.
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    // A new child leads no group, so this cannot fail; and it must not hold on to a directory.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    keep_apart();
    let Some((Word::Hold, held)) = channel::receive(channel)? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let [group, watch, _mount] = &held[..] else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    channel::send(channel, Word::Held, &[])?;
    loop {
        match channel::receive(channel)? {
            Some((Word::Done, _)) => return Ok(()),
            Some((Word::Hold | Word::Held, _)) => {}
            None if is_of_nothing(watch.as_fd())? => return Ok(()),
            None => return fail_until_the_end(group.as_fd(), watch.as_fd()),
        }
    }
}

/// Fails all reads until the filesystem ends.
fn fail_until_the_end(group: BorrowedFd<'_>, watch: BorrowedFd<'_>) -> io::Result<()> {
    // The limit of the filler, which has started us.
    let limit = getrlimit(Resource::Nofile)
        .current
        .unwrap_or(u64::MAX)
        .min(MOST_DESCRIPTORS);
    fail_all(group, RawFd::try_from(limit).unwrap_or(RawFd::MAX));
    loop {
        let mut waiting = [
            PollFd::from_borrowed_fd(group, PollFlags::IN),
            PollFd::from_borrowed_fd(watch, PollFlags::IN),
        ];
        match poll(&mut waiting, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !waiting[1].revents().is_empty() {
            return Ok(());
        }
        // An error may be about one event, and to go would let all of them through.
        for event in read(group).unwrap_or_default() {
            answer(group, event.fd, Verdict::Fail);
        }
    }
}
