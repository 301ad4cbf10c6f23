//! Whether the server of a mount has died.
//!
//! It may also answer nothing: one request goes to the mount, from another thread and with a limit of time.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use forerun_io::threads;
use rustix::io::Errno;

use crate::MountEntry;

/// How long a server may take to show that it lives.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns whether it is of a kind that can be dead. Others get no request: a network filesystem may
/// not answer for a long time.
pub fn is_fuse(entry: &MountEntry) -> bool {
    entry.fstype == "fuse" || entry.fstype.starts_with("fuse.")
}

/// Returns whether the server of an opened mount has died. Requests the statistics of the filesystem:
/// unlike attributes, these are never in a cache that outlives the server. A server that does not
/// answer in time counts as alive.
pub fn is_dead(opened: io::Result<OwnedFd>) -> bool {
    let Ok(opened) = opened else { return false };
    let (answer, answered) = sync_channel(1);
    let asking = threads::spawn("forerun-fuse-alive", move || {
        let asked = rustix::fs::fstatvfs(opened);
        let _too_late = answer.send(matches!(asked, Err(error) if is_disconnected(error)));
    });
    asking.is_ok() && answered.recv_timeout(SERVER_TIMEOUT).unwrap_or(false)
}

/// Returns whether the FUSE connection has no other end (ENOTCONN) or was cut (ECONNABORTED).
const fn is_disconnected(error: Errno) -> bool {
    matches!(error, Errno::NOTCONN | Errno::CONNABORTED)
}
