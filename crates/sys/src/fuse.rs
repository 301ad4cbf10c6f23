//! Requests to `/dev/fuse` about files that the kernel reads by itself (FUSE passthrough).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::checked;

/// `FUSE_DEV_IOC_BACKING_CLOSE` of `linux/fuse.h`: `_IOW(229, 2, uint32_t)`.
#[allow(clippy::as_conversions)] // The type of requests, all of 32 bits, differs between the C libraries.
const BACKING_CLOSE: libc::Ioctl = 0x4004_e502_u32 as libc::Ioctl;

/// Releases the backing id of a file that this or another process registered on `connection`.
///
/// # Errors
/// The errors of ioctl(2): ENOENT if no file has the id.
pub fn close_backing(connection: impl AsFd, id: u32) -> io::Result<()> {
    let connection = connection.as_fd().as_raw_fd();
    // SAFETY: the kernel reads four bytes of `id`, which outlives the call, and closes no descriptor of this process.
    checked(unsafe { libc::ioctl(connection, BACKING_CLOSE, &raw const id) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_connection_takes_no_such_request() {
        let error = close_backing(tempfile::tempfile().unwrap(), 1).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }
}
