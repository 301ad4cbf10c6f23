//! Mounts that a directory has already, by the kernel or by a process of ours.

use std::path::Path;

use forerun_fuse::MountEntry;
use forerun_kernel::Error;

use super::Via;
use crate::error::{Failure, Result, without_errno};
use crate::exit::Exit;

/// Refuses a directory on which forerun has mounted an image already. A dead FUSE mount is left to
/// [`forerun_fuse::mount`] where FUSE is to be used again.
pub fn refuse(dir: &Path, via: Via) -> Result<()> {
    let Ok(Some(entry)) = forerun::mount_at(dir) else {
        return Ok(());
    };
    let by_kernel = forerun_kernel::is_ours(&entry.fstype, &entry.source);
    let by_fuse = via != Via::Fuse && entry.fstype == forerun_fuse::FSTYPE;
    if !by_kernel && !by_fuse {
        return Ok(());
    }
    let image = forerun_kernel::image_of(&entry.source).unwrap_or_else(|| entry.source.into());
    let dir = entry.mount_point.display();
    let message = format!("{} is already mounted on {dir}", image.display());
    let failure = Failure::new(Exit::Mount, "mount", message);
    Err(failure.hint(format!("unmount it first: forerun umount {dir}")))
}

/// Takes down what the kernel serves; nothing where `dir` shows something else.
pub fn umount(dir: &Path, lazy: bool) -> Option<Result<()>> {
    let entry = forerun::mount_at(dir).ok()??;
    if !forerun_kernel::is_ours(&entry.fstype, &entry.source) {
        return None;
    }
    let taken = forerun_kernel::take_down(&entry, lazy);
    Some(taken.map_err(|error| umount_failure(&error)))
}

/// Takes a mount back that was just made: the caller was interrupted.
pub fn take_back(mount: Option<&MountEntry>) -> Result {
    let taken = mount.map_or(Ok(()), |mount| forerun_kernel::take_down(mount, true));
    taken.map_err(|error| umount_failure(&error))?;
    Ok(Exit::Interrupted)
}

fn umount_failure(error: &Error) -> Failure {
    let failure = Failure::new(Exit::Mount, "umount", without_errno(&error.to_string()));
    match error {
        Error::Umount { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            failure.hint("it was mounted by root: use sudo")
        }
        _ => failure,
    }
}
