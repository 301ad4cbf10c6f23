//! Open files of `/dev/fuse`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// From include/uapi/linux/fuse.h.
const FUSE_DEV_IOC_CLONE: libc::Ioctl = libc::_IOR::<u32>(229, 0);

/// Makes `new`, a file of `/dev/fuse` without a connection, a second file of the connection of
/// `connected`.
///
/// # Errors
/// The errors of ioctl(2): EINVAL if one of them is no such file.
pub fn join(new: BorrowedFd<'_>, connected: BorrowedFd<'_>) -> io::Result<()> {
    let number = connected.as_raw_fd().cast_unsigned();
    // SAFETY: the kernel reads one u32 from the address of a u32, and keeps no pointer.
    let done = unsafe { libc::ioctl(new.as_raw_fd(), FUSE_DEV_IOC_CLONE, &raw const number) };
    match done {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_has_no_connection_is_refused() {
        let null = File::open("/dev/null").unwrap();
        assert!(join(null.as_fd(), null.as_fd()).is_err());
        // There is no connection without a mount. The crate of FUSE mounts has a test with one.
        let device = || File::options().read(true).write(true).open("/dev/fuse");
        if let (Ok(new), Ok(other)) = (device(), device()) {
            assert!(join(new.as_fd(), other.as_fd()).is_err());
        }
    }
}
