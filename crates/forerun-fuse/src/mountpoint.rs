//! Directories to mount on: which path they have, and what is there already.
//!
//! What is there may be the mount of a process that has died. Most questions to it give an error, and
//! some an answer out of a cache, so it is asked as little as possible.

use std::io;
use std::path::{Path, PathBuf};

use forerun::top_mount;
use rustix::io::Errno;

use crate::umount::detach;
use crate::{FSTYPE, MountEntry, MountError};

/// The absolute path of a usable mountpoint.
pub fn prepare(dir: &Path) -> Result<PathBuf, MountError> {
    let unusable = |source| MountError::Mountpoint {
        path: dir.to_path_buf(),
        source,
    };
    let path = resolve(dir).map_err(unusable)?;
    let there = top_mount(&path).map_err(MountError::MountInfo)?;
    if let Some(entry) = there {
        let ours = entry.fstype == FSTYPE;
        match (is_fuse(&entry) && is_dead(&path), ours) {
            (true, true) => {
                // Nobody will ever answer there, and what it showed was an image: nothing is lost.
                if detach(&path, true).is_err() {
                    return Err(MountError::DeadMount {
                        path,
                        fstype: entry.fstype,
                        command: "forerun umount",
                    });
                }
                tracing::info!("removed the dead mount on {}", path.display());
            }
            (true, false) => {
                return Err(MountError::DeadMount {
                    path,
                    fstype: entry.fstype,
                    command: "umount",
                });
            }
            (false, true) => {
                let image = PathBuf::from(entry.source);
                return Err(MountError::AlreadyMounted { path, image });
            }
            (false, false) => {}
        }
    }
    let metadata = path.metadata().map_err(unusable)?;
    if !metadata.is_dir() {
        return Err(MountError::NotADirectory { path });
    }
    if path
        .read_dir()
        .is_ok_and(|mut entries| entries.next().is_some())
    {
        tracing::info!("{} is not empty; the mount hides its files", path.display());
    }
    Ok(path)
}

/// Whether it is of a kind that can be dead. Others are better not asked: a network filesystem may
/// not answer for a long time.
pub fn is_fuse(entry: &MountEntry) -> bool {
    entry.fstype == "fuse" || entry.fstype.starts_with("fuse.")
}

/// The absolute path of a mountpoint, without a question to what is mounted there.
pub fn resolve(dir: &Path) -> io::Result<PathBuf> {
    match dir.canonicalize() {
        Err(error) if Errno::from_io_error(&error).is_some_and(is_disconnected) => {
            match (dir.parent(), dir.file_name()) {
                (Some(parent), Some(name)) => {
                    let parent = match parent.as_os_str().is_empty() {
                        true => Path::new("."),
                        false => parent,
                    };
                    Ok(parent.canonicalize()?.join(name))
                }
                _ => Err(error),
            }
        }
        result => result,
    }
}

/// Whether the process that serves what is mounted on `path` has died. Asks for the statistics of
/// the filesystem: unlike attributes, these are never in a cache that outlives their server.
pub fn is_dead(path: &Path) -> bool {
    matches!(rustix::fs::statvfs(path), Err(error) if is_disconnected(error))
}

/// ENOTCONN: the FUSE connection has no other end. ECONNABORTED: it was cut.
const fn is_disconnected(error: Errno) -> bool {
    matches!(error, Errno::NOTCONN | Errno::CONNABORTED)
}
