//! Descriptors that another value owns: dup3(2) onto one, and duplicates by number.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::checked;

/// Makes `descriptor` refer to the open file of `file`, and marks it close-on-exec. The owner of
/// `descriptor` stays the same.
///
/// # Errors
/// The errors of dup3(2): `InvalidInput` if both are the same descriptor.
pub fn replace(descriptor: impl AsFd, file: impl AsFd) -> io::Result<()> {
    let (from, to) = (file.as_fd().as_raw_fd(), descriptor.as_fd().as_raw_fd());
    // SAFETY: both are borrowed, so they stay open during the call. The number of `descriptor` is
    // valid before, during and after the call, so its owner never holds a number that is closed or
    // belongs to another owner.
    checked(unsafe { libc::dup3(from, to, libc::O_CLOEXEC) })?;
    Ok(())
}

/// Duplicates the descriptor with this number, whoever owns it.
///
/// # Errors
/// The errors of fcntl(2): EBADF if there is no such descriptor.
pub fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call does not change the state of `number`, whatever that is.
    let new = checked(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) })?;
    // SAFETY: the kernel has just opened `new`, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn the_owner_of_a_replaced_descriptor_has_the_other_file() {
        let mut first = tempfile::tempfile().unwrap();
        let mut second = tempfile::tempfile().unwrap();
        let number = first.as_raw_fd();
        replace(&first, &second).unwrap();
        first.write_all(b"text").unwrap();
        assert_eq!(first.as_raw_fd(), number);
        let mut text = String::new();
        second.rewind().unwrap();
        second.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        let flags = rustix::io::fcntl_getfd(&first).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        let error = replace(&first, &first).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_duplicate_is_of_the_same_file_and_has_a_number_of_its_own() {
        let mut file = tempfile::tempfile().unwrap();
        let mut other = File::from(duplicate(file.as_raw_fd()).unwrap());
        assert_ne!(other.as_raw_fd(), file.as_raw_fd());
        other.write_all(b"text").unwrap();
        drop(other);
        assert_eq!(file.stream_position().unwrap(), 4);
        let error = duplicate(1 << 28).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }
}
