//! Detects whether the server of a mount has died or does not respond, with one request from
//! another thread and a timeout.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use forerun_sys::mountpoint::Mountpoint;
use forerun_sys::threads;
use rustix::io::Errno;

use forerun_sys::mount_table::MountEntry;

const SERVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns whether the mount is of a type that can be dead. Others get no request: a network
/// filesystem may take long to answer.
pub fn is_fuse(entry: &MountEntry) -> bool {
    entry.fstype == "fuse" || entry.fstype.starts_with("fuse.")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    Alive,
    /// Did not answer in time: it is stopped, or was killed and cannot exit.
    Silent,
    Dead,
}

/// Tests the server of an opened mount with statfs(2), whose result, unlike attributes, is never
/// cached beyond the server's life.
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

/// Tests the server of a FUSE mount. If another mount is visible in its place, it counts as alive.
#[must_use]
pub fn liveness_of(entry: &MountEntry) -> Liveness {
    let opened = Mountpoint::open(&entry.mount_point).ok();
    let is_it = |opened: &Mountpoint| matches!(opened.mounted(), Ok(Some(now)) if now == *entry);
    match opened.filter(is_it) {
        Some(opened) => of_opened(opened.as_fd().try_clone_to_owned()),
        None => Liveness::Alive,
    }
}

/// Returns whether the connection has ended (ENOTCONN) or was aborted (ECONNABORTED).
const fn is_disconnected(error: Errno) -> bool {
    matches!(error, Errno::NOTCONN | Errno::CONNABORTED)
}
