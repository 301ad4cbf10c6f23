//! Maps driver errors to errno.
//!
//! `forerun-fuse` has a larger table for writable volumes, but would bring the FUSE library and the
//! engine into the runtime.

use forerun_vfs::Error;
use rustix::io::Errno;

/// Returns the errno for `error`. Corruption and read errors are `EIO`.
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
