//! Whether the server of a mount has died.
//!
//! It may also answer nothing: one request goes to the mount, from another thread and with a limit of time.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use forerun_sys::mountpoint::Mountpoint;
use forerun_sys::threads;
use rustix::io::Errno;

use forerun_sys::mount_table::MountEntry;

/// How long a server may take to show that it lives.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns whether it is of a kind that can be dead. Others get no request: a network filesystem may
/// not answer for a long time.
pub fn is_fuse(entry: &MountEntry) -> bool {
    entry.fstype == "fuse" || entry.fstype.starts_with("fuse.")
}

/// Whether the server of a mount lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    Alive,
    /// It has not answered in time: it is stopped, or was killed and cannot end.
    Silent,
    Dead,
}

/// Finds out whether the server of an opened mount has died. Requests the statistics of the filesystem:
/// unlike attributes, these are never in a cache that outlives the server.
pub fn of_opened(opened: io::Result<OwnedFd>) -> Liveness {
    let Ok(opened) = opened else {
        return Liveness::Alive;
    };
    let (answer, answered) = sync_channel(1);
    let asking = threads::spawn("forerun-fuse-asks", move || {
        let _too_late = answer.send(rustix::fs::fstatvfs(opened).map(drop));
    });
    if asking.is_err() {
        return Liveness::Alive;
    }
    match answered.recv_timeout(SERVER_TIMEOUT) {
        Ok(Err(error)) if is_disconnected(error) => Liveness::Dead,
        Ok(_) => Liveness::Alive,
        Err(_) => Liveness::Silent,
    }
}

/// Finds out whether the server of a FUSE mount has died. What is seen in the place of the mount may be another one: then
/// it counts as alive.
#[must_use]
pub fn liveness_of(entry: &MountEntry) -> Liveness {
    let opened = Mountpoint::open(&entry.mount_point).ok();
    let is_it = |opened: &Mountpoint| matches!(opened.mounted(), Ok(Some(now)) if now == *entry);
    match opened.filter(is_it) {
        Some(opened) => of_opened(opened.as_fd().try_clone_to_owned()),
        None => Liveness::Alive,
    }
}

/// Returns whether the FUSE connection has no other end (ENOTCONN) or was cut (ECONNABORTED).
const fn is_disconnected(error: Errno) -> bool {
    matches!(error, Errno::NOTCONN | Errno::CONNABORTED)
}
