//! `mount -o remount`: changes the flags of a mount.
//!
//! mount(8) calls the helper of the filesystem type for this too. The kernel keeps the flags; the
//! serving process is not informed.

use std::fs::File;
use std::path::Path;

use crate::attach::flags;
use crate::liveness::is_fuse;
use crate::mountpoint::open;
use crate::{MountError, MountOptions, UmountError};

/// Sets the flags of the FUSE mount on `dir` to those of `options`: `suid`, `dev`, `exec`, and `ro`
/// or `rw` if given. When a mount has become read-only, all its changes are on the device.
///
/// # Errors
/// [`MountError`]: no FUSE mount is there, a file is open for writing, it is not permitted, or the
/// device fails.
pub fn remount(dir: &Path, options: &MountOptions) -> Result<(), MountError> {
    let place = open(dir)?;
    let path = place.path().to_path_buf();
    let entry = place.mounted().map_err(MountError::MountInfo)?;
    let Some(entry) = entry else {
        return Err(UmountError::NotMounted { path }.into());
    };
    if !is_fuse(&entry) {
        let fstype = entry.fstype;
        return Err(UmountError::NotOurs { path, fstype }.into());
    }
    let read_only = options.ro_asked || (entry.is_read_only() && !options.rw_asked);
    let flags = flags(options, !read_only);
    rustix::mount::mount_remount(place.by_descriptor(), flags, c"").map_err(|error| {
        MountError::Remount {
            path: path.clone(),
            source: error.into(),
        }
    })?;
    if read_only && !entry.is_read_only() {
        // The kernel does not sync FUSE here. fsync(2) of the root makes the whole volume durable.
        let synced = File::open(place.by_descriptor()).and_then(|root| root.sync_all());
        synced.map_err(|source| MountError::Remount { path, source })?;
    }
    Ok(())
}
