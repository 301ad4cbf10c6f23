//! A fanotify group that gets an event before a file is read, and the mark that requests these events.
//!
//! The mark is not on the file but on a mount of the file that only the kernel's filesystem driver reads
//! through. So no other reader or writer of the same file is held up: neither we nor other processes
//! that share the cache.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;

use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use nix_numbers::fcntl::OFlag;
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};

use super::event::{Event, Verdict, parse, response};
use crate::drivers::ON_DEMAND;
use crate::error::Error;

/// FAN_PRE_ACCESS of Linux 6.14: before bytes are read.
const PRE_ACCESS: MaskFlags = MaskFlags::from_bits_retain(0x0010_0000);
/// Room for the events of one read(2).
const BUFFER: usize = 16 << 10;

/// A mount of one file, attached nowhere.
#[derive(Debug)]
pub struct PrivateMount {
    tree: OwnedFd,
}

impl PrivateMount {
    /// Clones a mount of `file`, which stays as it is.
    pub fn of(file: &File) -> Result<Self, Error> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = open_tree(file, "", flags).map_err(|error| match error {
            Errno::PERM => Error::NotPermitted {
                fstype: ON_DEMAND.fstype,
            },
            error => Error::on_demand("a mount of the cache's file", error),
        })?;
        Ok(Self { tree })
    }

    /// Returns a path to the file through this mount, for this process.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.tree.as_raw_fd()).into()
    }
}

impl From<OwnedFd> for PrivateMount {
    fn from(tree: OwnedFd) -> Self {
        Self { tree }
    }
}

impl AsFd for PrivateMount {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }
}

/// A group, which answers nothing by itself: each event must be [answered](answer). When its last
/// descriptor is closed, the kernel lets all reads go on, also those of bytes that are not there.
#[derive(Debug)]
pub struct Group {
    fanotify: Fanotify,
}

impl Group {
    /// Returns a group that gets an event before bytes are read through `mount`.
    pub fn of(mount: &PrivateMount) -> Result<Self, Error> {
        // The kernel lets reads go on that find a limited queue full.
        let flags = InitFlags::FAN_CLASS_PRE_CONTENT
            | InitFlags::FAN_CLOEXEC
            | InitFlags::FAN_NONBLOCK
            | InitFlags::FAN_UNLIMITED_QUEUE;
        let of_events = EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC | EventFFlags::O_LARGEFILE;
        let fanotify = Fanotify::init(flags, of_events).map_err(|error| match error {
            nix::Error::EPERM => Error::NotPermitted {
                fstype: ON_DEMAND.fstype,
            },
            nix::Error::EINVAL | nix::Error::ENOSYS => Error::NoPreContent,
            error => Error::on_demand("fanotify_init", error),
        })?;
        let group = Self { fanotify };
        group
            .mark(MarkFlags::FAN_MARK_ADD, mount)
            .map_err(|error| match error {
                nix::Error::EINVAL | nix::Error::EOPNOTSUPP => Error::NoPreContent,
                error => Error::on_demand("fanotify_mark", error),
            })?;
        Ok(group)
    }

    /// Removes the mark: no more events come. Those that wait still have to be answered.
    pub fn forget(&self, mount: &PrivateMount) -> io::Result<()> {
        Ok(self.mark(MarkFlags::FAN_MARK_REMOVE, mount)?)
    }

    fn mark(&self, flags: MarkFlags, mount: &PrivateMount) -> nix::Result<()> {
        let flags = flags | MarkFlags::FAN_MARK_MOUNT;
        self.fanotify
            .mark(flags, PRE_ACCESS, CWD, Some(&mount.path()))
    }
}

impl Group {
    /// Returns the group behind this descriptor, which another process has made.
    ///
    /// nix wraps a group that it has not made only by an `unsafe` function. So this makes another group
    /// and replaces its descriptor. `init.rs` in `forerun-fuse` does the same, and says why that is
    /// sound.
    pub fn inherited(group: &OwnedFd) -> io::Result<Self> {
        let flags = InitFlags::FAN_CLASS_PRE_CONTENT | InitFlags::FAN_CLOEXEC;
        let fanotify = Fanotify::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC)?;
        let number = fanotify.as_fd().as_raw_fd();
        nix_numbers::unistd::dup3(group.as_raw_fd(), number, OFlag::O_CLOEXEC)?;
        Ok(Self { fanotify })
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fanotify.as_fd()
    }
}

/// Reads the events that have come, each of which waits for an [`answer`]. Does not block.
pub fn read(group: BorrowedFd<'_>) -> io::Result<Vec<Event>> {
    let mut buffer = [0; BUFFER];
    let len = match rustix::io::read(group, &mut buffer) {
        Ok(len) => len,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let (events, whole) = parse(buffer.get(..len).unwrap_or_default());
    if !whole {
        tracing::error!("the kernel sent events that are not understood");
    }
    Ok(events)
}

/// Answers an event that was [read](read) by this process. Only once: its number is free afterwards.
/// `before_free` is called while the number is still taken.
pub fn answer(group: BorrowedFd<'_>, event: RawFd, verdict: Verdict, before_free: impl FnOnce()) {
    if event < 0 {
        return;
    }
    if let Err(error) = send(group, event, verdict) {
        tracing::error!(%error, "an answer was not taken");
    }
    before_free();
    // The kernel has opened it for the process that answers.
    if let Err(error) = nix::unistd::close(event) {
        tracing::error!(%error, "the descriptor of an event");
    }
}

/// Answers an event that was read by a process that is gone.
pub fn answer_for_another(group: BorrowedFd<'_>, event: RawFd, verdict: Verdict) {
    match send(group, event, verdict) {
        // The other process had answered it, and died before it could record that.
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => tracing::error!(%error, "an answer was not taken"),
    }
}

/// Fails all reads whose events were taken by a process that is gone. The numbers of the events are
/// lost with it; all of them are below `limit`.
pub fn fail_all(group: BorrowedFd<'_>, limit: RawFd) {
    for event in 0..limit {
        // The kernel answers ENOENT for a number without an event.
        let _ = send(group, event, Verdict::Fail);
    }
}

fn send(group: BorrowedFd<'_>, event: RawFd, verdict: Verdict) -> rustix::io::Result<()> {
    let sent = rustix::io::retry_on_intr(|| rustix::io::write(group, &response(event, verdict)));
    match sent {
        Err(Errno::INVAL) if verdict == Verdict::Fail => send(group, event, Verdict::Deny),
        sent => sent.map(drop),
    }
}
