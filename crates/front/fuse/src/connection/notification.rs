//! Notifications: messages to the kernel that answer no request.

use std::io;
use std::os::fd::AsFd;

use forerun_io::u64_from;

/// Bytes of the header: length, notification code, and 0 instead of a request's unique ID.
const HEADER: u64 = 16;

/// Notification code of FUSE_NOTIFY_INVAL_INODE.
const NOTIFY_INVAL_INODE: u32 = 2;

/// Makes the kernel drop the attributes of a node, and its data or listing from `offset` on. A
/// negative offset leaves these alone.
pub fn invalidate(connection: impl AsFd, number: u64, offset: i64) -> io::Result<()> {
    // A length of 0 means everything.
    let body = [number.cast_signed(), offset, 0].map(i64::to_ne_bytes);
    let message = notification(NOTIFY_INVAL_INODE, body.as_flattened(), &[])?;
    rustix::io::write(connection, &message)?;
    Ok(())
}

/// Builds a notification; the caller sends `data` after it.
pub fn notification(number: u32, body: &[u8], data: &[u8]) -> io::Result<Vec<u8>> {
    let len = HEADER + u64_from(body.len()) + u64_from(data.len());
    let len = u32::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut message = [len, number].map(u32::to_ne_bytes).concat();
    message.extend_from_slice(&0_u64.to_ne_bytes());
    message.extend_from_slice(body);
    Ok(message)
}
