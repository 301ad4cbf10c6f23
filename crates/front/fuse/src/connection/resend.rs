//! Requests that the kernel sends again, and the notification that has it do so.

use std::io;
use std::os::fd::AsFd;

use super::notification;

/// Number of the notification (FUSE_NOTIFY_RESEND, Linux 6.9).
const NOTIFY_RESEND: u32 = 7;

/// The bit of a request's number that says that the kernel sends it again.
pub const RESENT: u64 = 1 << 63;

/// Has the kernel send again what was read from this connection and not answered.
///
/// A request that a thread of a killed process is only just reading is not among them: the kernel counts
/// it as read when that thread leaves read(2). So the last call comes when no such thread is left.
///
/// # Errors
/// The errors of write(2); ENODEV where the mount has ended.
pub fn resend(connection: impl AsFd) -> io::Result<()> {
    rustix::io::write(connection, &notification(NOTIFY_RESEND, &[], &[])?)?;
    Ok(())
}
