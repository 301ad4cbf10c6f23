//! Errors of mounting and unmounting, with hints for users.

mod handover;

use std::io;
use std::path::PathBuf;

pub use handover::HandoverError;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    #[error("mountpoint {}: {source}", path.display())]
    Mountpoint { path: PathBuf, source: io::Error },
    #[error("mountpoint {} is not a directory", path.display())]
    NotADirectory { path: PathBuf },
    /// An image is mounted there already, and its server is alive.
    #[error("{} is already mounted on {}", image.display(), path.display())]
    AlreadyMounted { path: PathBuf, image: PathBuf },
    /// The server of the existing mount has died.
    #[error("{} holds a dead {fstype} mount, whose process is gone", path.display())]
    DeadMount {
        path: PathBuf,
        fstype: String,
        command: &'static str,
    },
    #[error("mount option {option} needs root")]
    NeedsRoot { option: &'static str },
    #[error("opening /dev/fuse: {source}")]
    Device { source: io::Error },
    /// The kernel refused a detached mount.
    #[error("mounting: {0}")]
    Detached(#[source] io::Error),
    #[error("mounting on {}: {source}", path.display())]
    System { path: PathBuf, source: io::Error },
    #[error("remounting {}: {source}", path.display())]
    Remount { path: PathBuf, source: io::Error },
    /// This user may not mount, and fusermount3 is missing.
    #[error("mounting without root needs the program fusermount3, which is not installed")]
    NoHelper,
    /// The process that unmounts if this one dies could not be started.
    #[error("auto_unmount needs the process that mounts and unmounts, which was not started")]
    Watchdog,
    #[error("{}: {}", program.display(), message.trim())]
    Helper { program: PathBuf, message: String },
    #[error("FUSE handshake: {0}")]
    Handshake(#[source] io::Error),
    #[error("the new mount on {} does not answer: {source}", path.display())]
    NoAnswer { path: PathBuf, source: io::Error },
    #[error("the root directory: {0}")]
    Root(#[source] forerun_vfs::Error),
    /// The serving threads could not be started, or failed.
    #[error("serving the mount: {0}")]
    Serve(#[source] io::Error),
    #[error("/proc/self/mountinfo: {0}")]
    MountInfo(#[source] io::Error),
    #[error("joining the mount namespace: {0}")]
    Namespace(#[source] io::Error),
    #[error(transparent)]
    Umount(#[from] UmountError),
    /// The process outside the sandbox, which mounts for this one, reported this.
    #[error("{message}")]
    Outside {
        message: String,
        hint: Option<String>,
    },
    #[error(transparent)]
    Handover(#[from] HandoverError),
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UmountError {
    #[error("{}: {source}", path.display())]
    Path { path: PathBuf, source: io::Error },
    #[error("nothing is mounted on {}", path.display())]
    NotMounted { path: PathBuf },
    /// A mount that is not forerun's is there.
    #[error("{} is a mount of type {fstype}, not one of forerun's", path.display())]
    NotOurs { path: PathBuf, fstype: String },
    #[error(
        "{} is in use: a file is open or a process has its working directory there",
        path.display()
    )]
    Busy { path: PathBuf },
    /// The last changes cannot be written; the mount stays.
    #[error("{} stays mounted: its last changes could not be written: {source}", path.display())]
    NotWritten { path: PathBuf, source: io::Error },
    /// Unmounted, although the last changes could not be written.
    #[error("{} is unmounted, and its last changes are lost: {source}", path.display())]
    ChangesLost { path: PathBuf, source: io::Error },
    #[error(
        "{} is in use, and no process serves it: its process was killed, or is stopped",
        path.display()
    )]
    Unserved { path: PathBuf },
    #[error("{} is mounted inside {}", inner.display(), path.display())]
    HoldsMount { path: PathBuf, inner: PathBuf },
    #[error("{} is covered by another mount", path.display())]
    Covered { path: PathBuf },
    #[error("unmounting {}: {source}", path.display())]
    System { path: PathBuf, source: io::Error },
    /// This user may not unmount, and fusermount3 is missing.
    #[error("unmounting without root needs the program fusermount3, which is not installed")]
    NoHelper,
    #[error("{}: {}", program.display(), message.trim())]
    Helper { program: PathBuf, message: String },
    #[error("/proc/self/mountinfo: {0}")]
    MountInfo(#[source] io::Error),
    /// The process outside the sandbox, which unmounts for this one, reported this.
    #[error("{0}")]
    Outside(String),
}

const INSTALL_HELPER: &str = "install it: it is in the package fuse3";

impl MountError {
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Mountpoint { path, source } if source.kind() == io::ErrorKind::NotFound => {
                format!("make it first: mkdir {}", path.display())
            }
            Self::AlreadyMounted { path, .. } => {
                format!("unmount it first: forerun umount {}", path.display())
            }
            Self::DeadMount { path, command, .. } => {
                format!("remove it: {command} {}", path.display())
            }
            Self::Device { source } => match source.kind() {
                io::ErrorKind::NotFound => "load FUSE with modprobe fuse; give the device to a container with docker run --device /dev/fuse"
                    .to_string(),
                io::ErrorKind::PermissionDenied => {
                    "this user or container may not use FUSE; chmod 666 /dev/fuse allows it for every user".to_string()
                }
                _ => return None,
            },
            Self::NoHelper => INSTALL_HELPER.to_string(),
            Self::Umount(error) => return error.hint(),
            Self::Outside { hint, .. } => return hint.clone(),
            _ => return None,
        })
    }
}

impl UmountError {
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotOurs { path, .. } => {
                format!("umount {} unmounts it; so does --force", path.display())
            }
            Self::Busy { .. } => {
                "--lazy detaches it now, and ends it when it is unused".to_string()
            }
            Self::NotWritten { .. } => {
                "--force unmounts it, and these changes are lost".to_string()
            }
            Self::Unserved { .. } => {
                "--force unmounts it; pending requests of its users fail".to_string()
            }
            Self::HoldsMount { inner, .. } => {
                format!("unmount that first: umount {}", inner.display())
            }
            Self::Covered { path } => {
                format!("unmount that first: umount {}", path.display())
            }
            Self::NoHelper => INSTALL_HELPER.to_string(),
            _ => return None,
        })
    }
}
