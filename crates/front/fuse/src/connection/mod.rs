//! The connection to the kernel where `fuser` has no part in it: whether it still has a mount, requests that
//! are sent again, and a session on a connection that another process began.

mod init;
mod resend;

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub use init::{Negotiated, request as init_request, session};
pub use resend::{RESENT, resend};

/// Returns whether the connection still has a mount. FUSE signals an error on one that has none any more.
pub fn is_connected(connection: &OwnedFd) -> bool {
    let mut connection = [PollFd::new(connection, PollFlags::empty())];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    match poll(&mut connection, Some(&at_once)) {
        Ok(_) => connection
            .iter()
            .all(|fd| !fd.revents().contains(PollFlags::ERR)),
        Err(_) => true,
    }
}
