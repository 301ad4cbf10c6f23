//! Mounts on a connection passed by the caller as `/dev/fd/7` instead of a directory.
//!
//! The caller has opened `/dev/fuse`, mounted it, and left the descriptor open. Programs do this to
//! mount with privileges that the server should not have. Opening the name would open a new
//! connection without the mount, so the descriptor is duplicated.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{fstat, major, minor};

use crate::MountError;

const DEVICE: (u32, u32) = (10, 229);

/// Returns whether `dir` names a descriptor of an existing mount's connection.
#[must_use]
pub fn is_descriptor(dir: &Path) -> bool {
    number(dir).is_some()
}

fn number(dir: &Path) -> Option<RawFd> {
    let digits = dir.as_os_str().as_bytes().strip_prefix(b"/dev/fd/")?;
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    digits.parse().ok()
}

/// Returns the connection that `dir` names, `None` if `dir` is a directory.
pub fn connection(dir: &Path) -> Result<Option<OwnedFd>, MountError> {
    let Some(number) = number(dir) else {
        return Ok(None);
    };
    let taken = duplicate(number);
    taken.map(Some).map_err(|source| MountError::Mountpoint {
        path: dir.to_path_buf(),
        source,
    })
}

fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    let connection = forerun_sys::descriptor::duplicate(number)?;
    let device = fstat(&connection)?.st_rdev;
    if (major(device), minor(device)) != DEVICE {
        let text = "the descriptor is not one of /dev/fuse";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn only_numbers_are_descriptors() {
        for (dir, expected) in [
            ("/dev/fd/7", Some(7)),
            ("/dev/fd/", None),
            ("/dev/fd/+7", None),
            ("/dev/fd/7/", None),
            ("/dev/fd/99999999999", None),
            ("/mnt", None),
        ] {
            assert_eq!(number(Path::new(dir)), expected, "{dir}");
        }
    }

    #[test]
    fn a_descriptor_of_another_file_is_refused() {
        let file = File::open("/dev/null").unwrap();
        let dir = format!("/dev/fd/{}", file.as_raw_fd());
        let error = connection(Path::new(&dir)).unwrap_err().to_string();
        let expected = format!("mountpoint {dir}: the descriptor is not one of /dev/fuse");
        assert_eq!(error, expected);
        assert!(connection(Path::new("/dev/fd/1000000")).is_err());
    }
}
