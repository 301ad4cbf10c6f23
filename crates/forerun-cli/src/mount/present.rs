//! What is mounted on a directory already, by the kernel or by a process of ours.

use std::path::Path;

use forerun_fuse::MountEntry;
use forerun_kernel::Error;

use super::{Via, failed};
use crate::error::{Failure, Result, without_errno};
use crate::exit::Exit;

/// Refuses a directory on which an image of ours is mounted already. What FUSE has mounted there
/// may be dead, which [`forerun_fuse::mount`] sees to if it is FUSE's turn again.
pub fn refuse(dir: &Path, via: Via) -> Result<()> {
    let Some(entry) = top_mount(dir) else {
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
    let entry = top_mount(dir)?;
    if !forerun_kernel::is_ours(&entry.fstype, &entry.source) {
        return None;
    }
    let taken = forerun_kernel::umount(&entry.mount_point, lazy);
    Some(taken.map_err(|error| umount_failure(&error)))
}

/// Takes a mount back that was just made: whoever asked for it has changed their mind.
pub fn take_back(dir: &Path) -> Result {
    let path = dir.canonicalize();
    let path = path.map_err(|error| failed(&dir.display().to_string(), &error))?;
    let taken = forerun_kernel::umount(&path, true);
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

/// Returns the mount that is seen at `dir`; nothing on an error, which the caller's next step reports.
fn top_mount(dir: &Path) -> Option<MountEntry> {
    let path = dir.canonicalize().ok()?;
    forerun::top_mount(&path).ok()?
}
