//! The errno that the kernel gets for an error of the driver.
//!
//! `forerun-fuse` has a larger table, for volumes that change. The runtime cannot use that crate: it brings the library,
//! the engine and an implementation of the whole protocol.

use forerun_vfs::Error;
use rustix::io::Errno;

/// Returns the errno for `error`. Damage and failed reads are `EIO`.
pub const fn errno(error: &Error) -> Errno {
    match error {
        Error::NotFound => Errno::NOENT,
        Error::NotADirectory => Errno::NOTDIR,
        Error::IsADirectory => Errno::ISDIR,
        Error::NotASymlink | Error::NotAFile => Errno::INVAL,
        Error::StaleNode(_) => Errno::STALE,
        Error::Unsupported(_) => Errno::OPNOTSUPP,
        _ => Errno::IO,
    }
}
