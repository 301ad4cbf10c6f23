//! Unmounts kernel mounts. The layers below a mount (the EROFS of a composefs mount, a loop device)
//! end with it, because only the mount holds them.

use std::path::Path;

use forerun_sys::mount_table::MountEntry;
use forerun_sys::mountpoint::{Sight, find_mount, mount_at};
use rustix::io::Errno;

use crate::error::Error;

/// Unmounts the topmost mount at `path`. With `lazy` it is detached at once and ends with its last
/// user.
pub fn umount(path: &Path, lazy: bool) -> Result<(), Error> {
    let failed = |source| Error::Umount {
        path: path.to_path_buf(),
        source,
    };
    match mount_at(path).map_err(failed)? {
        Some(mount) => take_down(&mount, lazy),
        None => Err(failed(Errno::INVAL.into())),
    }
}

/// Unmounts exactly this mount, even if it was moved. Succeeds if the mount has ended already.
pub fn take_down(mount: &MountEntry, lazy: bool) -> Result<(), Error> {
    let path = mount.mount_point.clone();
    let seen = match find_mount(mount) {
        Ok(Sight::Visible(seen)) => seen,
        Ok(Sight::Gone) => return Ok(()),
        Ok(Sight::Covered) => return Err(Error::Covered { path }),
        Err(source) => return Err(Error::Umount { path, source }),
    };
    let path = seen.path().to_path_buf();
    let inner = seen.inner().map(Path::to_path_buf);
    let unmounted = match inner {
        Some(inner) if lazy => return Err(Error::HoldsMount { path, inner }),
        _ => seen.unmount(lazy),
    };
    unmounted.map_err(|error| match (error, inner) {
        (Errno::BUSY, Some(inner)) => Error::HoldsMount { path, inner },
        (Errno::BUSY, None) => Error::Busy { path },
        (error, _) => Error::Umount {
            path,
            source: error.into(),
        },
    })
}
