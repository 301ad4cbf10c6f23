//! Notifications: messages to the kernel that answer no request.

use std::io;

use forerun_io::u64_from;

/// Bytes of the header: length, notification code, and 0 instead of a request's unique ID.
const HEADER: u64 = 16;

/// Builds a notification; the caller sends `data` after it.
pub fn notification(number: u32, body: &[u8], data: &[u8]) -> io::Result<Vec<u8>> {
    let len = HEADER + u64_from(body.len()) + u64_from(data.len());
    let len = u32::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut message = [len, number].map(u32::to_ne_bytes).concat();
    message.extend_from_slice(&0_u64.to_ne_bytes());
    message.extend_from_slice(body);
    Ok(message)
}
