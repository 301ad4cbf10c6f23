//! Errors of a mount as a whole, and advice on what to do.

mod handover;

use std::io;
use std::path::PathBuf;

pub use handover::HandoverError;

/// Why an image could not be mounted, or its mount ended badly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The mountpoint cannot be used.
    #[error("mountpoint {}: {source}", path.display())]
    Mountpoint { path: PathBuf, source: io::Error },
    /// The mountpoint is no directory.
    #[error("mountpoint {} is not a directory", path.display())]
    NotADirectory { path: PathBuf },
    /// An image is mounted there already, and its server is alive.
    #[error("{} is already mounted on {}", image.display(), path.display())]
    AlreadyMounted {
        path: PathBuf,
        /// The image that is mounted there.
        image: PathBuf,
    },
    /// The server of what is mounted there has died.
    #[error("{} holds a dead {fstype} mount, whose process is gone", path.display())]
    DeadMount {
        path: PathBuf,
        /// Type of the mount.
        fstype: String,
        /// The command that removes it.
        command: &'static str,
    },
    /// The option is for root.
    #[error("mount option {option} needs root")]
    NeedsRoot { option: &'static str },
    /// `/dev/fuse` cannot be opened.
    #[error("opening /dev/fuse: {source}")]
    Device { source: io::Error },
    /// The kernel refused a mount that is attached nowhere.
    #[error("mounting: {0}")]
    Detached(#[source] io::Error),
    /// mount(2) refused.
    #[error("mounting on {}: {source}", path.display())]
    System { path: PathBuf, source: io::Error },
    /// The flags of a mount could not be changed.
    #[error("remounting {}: {source}", path.display())]
    Remount {
        /// Where it is mounted.
        path: PathBuf,
        source: io::Error,
    },
    /// Without the privilege to mount, and without the program that has it.
    #[error("mounting without root needs the program fusermount3, which is not installed")]
    NoHelper,
    /// No other process is there to unmount when this one dies.
    #[error("auto_unmount needs the process that mounts and unmounts, which was not started")]
    Watchdog,
    /// The program that mounts for users refused.
    #[error("{}: {}", program.display(), message.trim())]
    Helper { program: PathBuf, message: String },
    /// The kernel and we did not come to terms.
    #[error("FUSE handshake: {0}")]
    Handshake(#[source] io::Error),
    /// The mount is there but does not answer.
    #[error("the new mount on {} does not answer: {source}", path.display())]
    NoAnswer {
        path: PathBuf,
        /// The error of the first request.
        source: io::Error,
    },
    /// The root of the image cannot be read.
    #[error("the root directory: {0}")]
    Root(#[source] forerun_vfs::Error),
    /// The threads that answer could not be started, or ended with an error.
    #[error("serving the mount: {0}")]
    Serve(#[source] io::Error),
    /// Which mounts there are cannot be told.
    #[error("/proc/self/mountinfo: {0}")]
    MountInfo(#[source] io::Error),
    /// The mount namespace that is to have the mount cannot be joined.
    #[error("joining the mount namespace: {0}")]
    Namespace(#[source] io::Error),
    /// The mount could not be taken down.
    #[error(transparent)]
    Umount(#[from] UmountError),
    /// The process outside of the sandbox, which mounts for this one, reports this.
    #[error("{message}")]
    Outside {
        message: String,
        hint: Option<String>,
    },
    /// The mount could not be taken over from the process that served it.
    #[error(transparent)]
    Handover(#[from] HandoverError),
}

/// Why a mount could not be taken down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UmountError {
    /// The path cannot be resolved.
    #[error("{}: {source}", path.display())]
    Path { path: PathBuf, source: io::Error },
    /// Nothing is mounted there.
    #[error("nothing is mounted on {}", path.display())]
    NotMounted { path: PathBuf },
    /// Something else is mounted there.
    #[error("{} is a mount of type {fstype}, not one of forerun's", path.display())]
    NotOurs { path: PathBuf, fstype: String },
    /// A file is open, or a process has its working directory there.
    #[error(
        "{} is in use: a file is open or a process has its working directory there",
        path.display()
    )]
    Busy { path: PathBuf },
    /// The last changes cannot be written, so it stays mounted.
    #[error("{} stays mounted: its last changes could not be written: {source}", path.display())]
    NotWritten { path: PathBuf, source: io::Error },
    /// It was unmounted although the last changes could not be written.
    #[error("{} is unmounted, and its last changes are lost: {source}", path.display())]
    ChangesLost { path: PathBuf, source: io::Error },
    /// Programs use it, and its server does not answer.
    #[error(
        "{} is in use, and no process serves it: its process was killed, or is stopped",
        path.display()
    )]
    Unserved { path: PathBuf },
    /// Another mount is inside it.
    #[error("{} is mounted inside {}", inner.display(), path.display())]
    HoldsMount { path: PathBuf, inner: PathBuf },
    /// Something else was mounted on top.
    #[error("{} is covered by another mount", path.display())]
    Covered { path: PathBuf },
    /// umount(2) refused.
    #[error("unmounting {}: {source}", path.display())]
    System { path: PathBuf, source: io::Error },
    /// Without the privilege, and without the program that has it.
    #[error("unmounting without root needs the program fusermount3, which is not installed")]
    NoHelper,
    /// The program that unmounts for users refused.
    #[error("{}: {}", program.display(), message.trim())]
    Helper { program: PathBuf, message: String },
    /// Which mounts there are cannot be told.
    #[error("/proc/self/mountinfo: {0}")]
    MountInfo(#[source] io::Error),
    /// The process outside of the sandbox, which unmounts for this one, reports this.
    #[error("{0}")]
    Outside(String),
}

/// The program that mounts for users.
const INSTALL_HELPER: &str = "install it: it is in the package fuse3";

impl MountError {
    /// Returns advice for the user of a command line.
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
                io::ErrorKind::NotFound => "load FUSE: modprobe fuse; a container has to be given the \
                    device: docker run --device /dev/fuse"
                    .to_string(),
                io::ErrorKind::PermissionDenied => {
                    "this user or container may not use FUSE: chmod 666 /dev/fuse permits it to every user".to_string()
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
    /// Returns advice for the user of a command line.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotOurs { path, .. } => {
                format!("umount {} unmounts it; so does --force", path.display())
            }
            Self::Busy { .. } => {
                "--lazy detaches it now, and ends it when its last user is gone".to_string()
            }
            Self::NotWritten { .. } => {
                "--force unmounts it, and these changes are lost".to_string()
            }
            Self::Unserved { .. } => {
                "--force unmounts it, and what its users wait for fails".to_string()
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
