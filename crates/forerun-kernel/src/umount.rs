//! Taking a mount of the kernel down. What is below it (the EROFS of a composefs mount, a loop
//! device) goes with it: nobody else holds them.

use std::path::Path;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::error::Error;

/// Unmounts what is on top of `path`, an absolute path; with `lazy` out of sight at once, and for
/// good when its last user is gone.
///
/// # Errors
/// [`Error::Busy`], [`Error::NotPermitted`], [`Error::Umount`].
pub fn umount(path: &Path, lazy: bool) -> Result<(), Error> {
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::DETACH, lazy);
    rustix::mount::unmount(path, flags).map_err(|error| {
        let path = path.to_path_buf();
        match error {
            Errno::BUSY => Error::Busy { path },
            error => Error::Umount {
                path,
                source: error.into(),
            },
        }
    })
}
