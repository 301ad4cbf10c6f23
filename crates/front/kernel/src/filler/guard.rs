//! The guard: a second process that keeps a mount from showing zeros in place of missing bytes when
//! the filler dies.
//!
//! When the last descriptor of a fanotify group is closed, the kernel lets all reads go on, and a
//! sparse file has zeros where nothing was written yet. So two processes hold the group. The guard
//! does nothing as long as the filler lives. If the filler dies, the guard starts
//! [another](super::succession). Where fillers die too often, or cannot be started, the guard fails the
//! reads that wait and all that come, until the filesystem ends. If the guard dies, the filler starts
//! another guard. Only SIGKILL to both at the same moment defeats this; [`apart`](super::apart) makes
//! such an accident unlikely.
//!
//! The guard is this same program, executed anew: threads and locks do not survive a fork.

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

use super::apart::{self, Surroundings, keep_apart};
use super::channel::{self, Word};
use super::event::Verdict;
use super::group::{answer, fail_all, read};
use super::succession::{FillerCommand, Succession};
use super::watch::{has_ended, is_of_nothing};

/// The variable that makes a new process a guard.
pub(super) const ROLE: &str = "FORERUN_KERNEL_GUARD";
/// Numbers of descriptors that are tried at most, where their number has no limit.
const MOST_DESCRIPTORS: u64 = 1 << 20;

/// How the guard is started: this program with these arguments. It must call [`run_guard`] first.
#[derive(Clone, Debug, Default)]
pub struct GuardArgs {
    /// Arguments for the program, which only the code before [`run_guard`] needs.
    pub args: Vec<OsString>,
    /// The filler that the guard starts when the first has died. Without it, reads of missing bytes fail
    /// then.
    pub filler: Option<FillerCommand>,
}

/// The guard, as the filler sees it.
#[derive(Debug)]
pub struct Guard {
    /// The guard's process; nothing where the guard has started this process.
    child: Option<Child>,
    id: u32,
    channel: OwnedFd,
}

impl Guard {
    /// Starts a guard. It holds `descriptors` when this returns: the group, the watch, the mount and
    /// the ledger.
    pub fn start(args: &GuardArgs, descriptors: [BorrowedFd<'_>; 4]) -> io::Result<Self> {
        let filler = FillerCommand::keep(args.filler.as_ref())?;
        let [group, watch, mount, ledger] = descriptors;
        let (channel, theirs) = channel::pair()?;
        let mut command = Command::new(program());
        std::os::unix::process::CommandExt::arg0(&mut command, apart::NAME);
        let child = command
            .args(&args.args)
            .env(ROLE, "1")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // It holds the other end of the channel until here.
        drop(command);
        let guard = Self {
            id: child.id(),
            child: Some(child),
            channel,
        };
        let descriptors = [group, watch, mount, ledger, filler.as_fd()];
        channel::send(&guard.channel, Word::Hold, &descriptors)?;
        match channel::receive(&guard.channel)? {
            Some((Word::Held, _)) => Ok(guard),
            _ => Err(io::Error::other(
                "the process that guards the mount did not start",
            )),
        }
    }

    /// Returns the guard that has started this process, and tells it that the descriptors are here.
    pub fn of_this_process(channel: OwnedFd, id: u32) -> io::Result<Self> {
        channel::send(&channel, Word::Held, &[])?;
        Ok(Self {
            child: None,
            id,
            channel,
        })
    }

    /// Tells the guard to end, and waits for that.
    pub fn dismiss(mut self) {
        // If it is dead already, it need not be told.
        let _ = channel::send(&self.channel, Word::Done, &[]);
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
    }

    /// Reaps the guard when it has died.
    pub fn bury(mut self) {
        // It may have closed the channel and live on.
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Returns its process number.
    pub const fn id(&self) -> u32 {
        self.id
    }
}

/// Readable when the guard is gone.
impl AsFd for Guard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// Returns the path of this program: that of its name where a file is there, else `/proc/self/exe`.
fn program() -> PathBuf {
    let itself = PathBuf::from("/proc/self/exe");
    let named = std::env::current_exe().ok().filter(|path| path.is_file());
    named.unwrap_or(itself)
}

/// Runs a guard to its end, where this process was started as one, and returns the exit code for the
/// program. Returns nothing in all other processes. To be called before anything else.
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
    // A signal by name, terminal or session is for the filler, which unmounts. The guard ignores it.
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    // A new child leads no process group, so this cannot fail. The guard must not keep a directory busy.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    let surroundings = Surroundings::of_this_process();
    keep_apart();
    let Some((Word::Hold, held)) = channel::receive(channel)? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let [group, watch, mount, ledger, command] = &held[..] else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let mut succession = Succession::new(command.as_fd(), surroundings);
    channel::send(channel, Word::Held, &[])?;
    let mut end = await_end(channel)?;
    loop {
        match end {
            End::Done => return Ok(()),
            End::Last => return fail_until_the_end(group.as_fd(), watch.as_fd()),
            End::Died => {}
        }
        if is_of_nothing(watch.as_fd())? || has_ended(watch.as_fd())? {
            return Ok(());
        }
        let held = [group, watch, mount, ledger].map(AsFd::as_fd);
        let Some(mut filler) = succession.next(&held) else {
            return fail_until_the_end(group.as_fd(), watch.as_fd());
        };
        let ended = await_end(filler.channel.as_fd());
        filler.bury();
        end = ended?;
    }
}

/// How a filler has ended.
enum End {
    /// It needs no guard any more.
    Done,
    /// No other filler is to take its place.
    Last,
    Died,
}

/// Waits for the end of a filler.
fn await_end(filler: BorrowedFd<'_>) -> io::Result<End> {
    let mut is_last = false;
    loop {
        match channel::receive(filler)? {
            Some((Word::Done, _)) => return Ok(End::Done),
            Some((Word::Last, _)) => is_last = true,
            Some((Word::Hold | Word::Held, _)) => {}
            None if is_last => return Ok(End::Last),
            None => return Ok(End::Died),
        }
    }
}

/// Fails all reads until the filesystem ends.
fn fail_until_the_end(group: BorrowedFd<'_>, watch: BorrowedFd<'_>) -> io::Result<()> {
    // The same limit as that of the filler, which has started this process.
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
        // An error may concern one event only, and the end of this process would let all reads through.
        for event in read(group).unwrap_or_default() {
            answer(group, event.fd, Verdict::Fail, || ());
        }
    }
}
