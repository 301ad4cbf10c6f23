//! Parts of the kernel connection that `fuser` does not handle: detecting unmount, resent requests,
//! and sessions on another process's connection.

mod init;
mod notification;
mod resend;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

#[cfg(feature = "fuzzing")]
pub use init::request as init_request;
pub use init::{Negotiated, session};
pub use notification::{invalidate, notification};
pub use resend::{RESENT, resend};

/// Opens a second file of a connection. When the first file is closed, the kernel fails the
/// requests read from it.
pub fn second(connection: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let new = OwnedFd::from(File::options().read(true).write(true).open("/dev/fuse")?);
    forerun_sys::fuse_device::join(new.as_fd(), connection)?;
    Ok(new)
}

/// Returns whether the kernel has queued requests that no thread has taken.
pub fn has_requests(connection: &OwnedFd) -> bool {
    happens(connection, PollFlags::IN)
}

/// Returns whether the connection still has a mount. The kernel signals POLLERR after an unmount.
pub fn is_connected(connection: &OwnedFd) -> bool {
    !happens(connection, PollFlags::ERR)
}

fn happens(connection: &OwnedFd, what: PollFlags) -> bool {
    let mut connection = [PollFd::new(connection, what)];
    let polled = poll(&mut connection, Some(&Timespec::default()));
    polled.is_ok() && connection[0].revents().contains(what)
}
