//! Existing mounts on the directory, by the kernel or by a forerun process.

use std::path::Path;

use super::Via;
use crate::error::{Failure, Result};
use crate::exit::Exit;

/// Refuses to mount on a directory that already has a forerun mount. A dead FUSE mount is left to
/// [`forerun_fuse::mount`], which can replace it.
pub fn refuse(dir: &Path, via: Via) -> Result<()> {
    let Ok(Some(entry)) = forerun_sys::mountpoint::mount_at(dir) else {
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
