//! Errors of a mount as a whole, with advice on what to do.

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
    #[error(
        "{} is already mounted on {}; unmount it first: forerun umount {}",
        image.display(), path.display(), path.display()
    )]
    AlreadyMounted {
        path: PathBuf,
        /// The image that is mounted there.
        image: PathBuf,
    },
    /// The server of what is mounted there has died.
    #[error(
        "{} holds a dead {fstype} mount, whose process is gone; remove it with: {command} {}",
        path.display(), path.display()
    )]
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
    #[error("/dev/fuse: {source}{}", device_advice(source))]
    Device { source: io::Error },
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
    #[error(
        "mounting without root needs the program fusermount3, which is not installed (Debian package fuse3)"
    )]
    NoHelper,
    /// No other process is there to unmount when this one dies.
    #[error("auto_unmount takes a process outside, which mounts and unmounts")]
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
    #[error("{0}")]
    Outside(String),
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
    #[error(
        "{} is a mount of type {fstype}, not one of forerun's; use umount(8), or --force to unmount it all the same",
        path.display()
    )]
    NotOurs { path: PathBuf, fstype: String },
    /// A file is open, or a process has its working directory there.
    #[error(
        "{} is in use: a file is open or a process has its working directory there; --lazy detaches it now and ends it when the last user is gone",
        path.display()
    )]
    Busy { path: PathBuf },
    /// The last changes cannot be written, so it stays mounted.
    #[error(
        "{} stays mounted: its last changes cannot be written: {source}; --force unmounts it and loses them",
        path.display()
    )]
    NotWritten { path: PathBuf, source: io::Error },
    /// It was unmounted although the last changes could not be written.
    #[error("{} is unmounted, and its last changes are lost: {source}", path.display())]
    ChangesLost { path: PathBuf, source: io::Error },
    /// Programs use it, and its server does not answer.
    #[error(
        "{} is in use, and no process serves it: its process was killed, or is stopped; --force fails what its users wait for, and unmounts it",
        path.display()
    )]
    Unserved { path: PathBuf },
    /// Another mount is inside it.
    #[error("{} is mounted inside {}; unmount that first", inner.display(), path.display())]
    HoldsMount { path: PathBuf, inner: PathBuf },
    /// Something else was mounted on top.
    #[error("{} is covered by another mount; unmount that first", path.display())]
    Covered { path: PathBuf },
    /// umount(2) refused.
    #[error("unmounting {}: {source}", path.display())]
    System { path: PathBuf, source: io::Error },
    /// Without the privilege, and without the program that has it.
    #[error(
        "unmounting without root needs the program fusermount3, which is not installed (Debian package fuse3)"
    )]
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

fn device_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "; this kernel has FUSE not loaded (try: modprobe fuse), or this container is not given the device"
        }
        io::ErrorKind::PermissionDenied => "; this user or container may not use FUSE",
        _ => "",
    }
}
