//! Makes the kernel resend unanswered requests (FUSE_NOTIFY_RESEND).

use std::io;
use std::os::fd::AsFd;

use super::notification;

/// Notification code (Linux 6.9).
const NOTIFY_RESEND: u32 = 7;

/// Bit in the unique ID of a resent request.
pub const RESENT: u64 = 1 << 63;

/// Makes the kernel resend all requests that were read from this connection and not answered.
///
/// This misses a request that a thread of a killed process is still reading: the kernel counts it
/// as read only when that thread leaves read(2). So the last call must come after all such threads
/// have ended. Fails with ENODEV after an unmount.
pub fn resend(connection: impl AsFd) -> io::Result<()> {
    rustix::io::write(connection, &notification(NOTIFY_RESEND, &[], &[])?)?;
    Ok(())
}
