//! Opens directories to mount on, and handles an existing mount there.
//!
//! The existing mount may be dead, or its server may not respond, so opening must not send a
//! request.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use forerun_sys::mount_table::MountEntry;
use forerun_sys::mountpoint::Mountpoint;

use crate::liveness::{Liveness, is_fuse, of_opened};
use crate::umount::take_down;
use crate::{FSTYPE, MountError, UmountError, UmountOptions};

/// Opens a directory to mount on. Removes a dead mount of forerun's that is there.
pub fn prepare(dir: &Path) -> Result<Mountpoint, MountError> {
    let place = open(dir)?;
    let there = place.mounted().map_err(MountError::MountInfo)?;
    let Some(entry) = there else {
        tell_of_files(&place);
        return Ok(place);
    };
    let path = place.path().to_path_buf();
    let ours = entry.fstype == FSTYPE;
    let alive = || of_opened(place.as_fd().try_clone_to_owned());
    let is_dead = is_fuse(&entry) && alive() == Liveness::Dead;
    match (is_dead, ours) {
        (true, true) => {
            drop(place);
            remove_dead(path, entry)?;
            open(dir)
        }
        (true, false) => Err(MountError::DeadMount {
            path,
            fstype: entry.fstype,
            command: "umount",
        }),
        (false, true) => {
            let image = PathBuf::from(entry.source);
            Err(MountError::AlreadyMounted { path, image })
        }
        (false, false) => Ok(place),
    }
}

/// Opens a directory without a request to the mount that is there.
pub fn open(dir: &Path) -> Result<Mountpoint, MountError> {
    let path = dir.to_path_buf();
    Mountpoint::open(dir).map_err(|source| match source.kind() {
        io::ErrorKind::NotADirectory => MountError::NotADirectory { path },
        _ => MountError::Mountpoint { path, source },
    })
}

/// Removes a dead mount. It served an image, so nothing is lost.
fn remove_dead(path: PathBuf, entry: MountEntry) -> Result<(), MountError> {
    let lazy = UmountOptions {
        lazy: true,
        force: false,
    };
    match take_down(&entry, lazy) {
        Ok(()) => tracing::info!("removed the dead mount on {}", path.display()),
        Err(error @ UmountError::HoldsMount { .. }) => return Err(error.into()),
        Err(_) => {
            return Err(MountError::DeadMount {
                path,
                fstype: entry.fstype,
                command: "forerun umount",
            });
        }
    }
    Ok(())
}

fn tell_of_files(place: &Mountpoint) {
    let mut entries = place.by_descriptor().read_dir().into_iter().flatten();
    if entries.next().is_some() {
        let path = place.path().display();
        tracing::info!("{path} is not empty; the mount hides its files");
    }
}
