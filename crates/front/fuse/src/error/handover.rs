//! Errors of handing over a mount.

use std::io;
use std::path::PathBuf;

/// The reason why a mount was not handed over. The old server continues.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandoverError {
    /// The writable mount was made to end with its process.
    #[error("the volume may have changes that are not written yet; unmount it and mount it again")]
    Volume,
    /// Open files have no name by which another process could find them.
    #[error("{count} removed files are still open; try again when they are closed")]
    Nameless { count: usize },
    /// The inode numbers have no bits left for another server's sequence number.
    #[error(
        "{count} processes have served the mount before this one, and no inode numbers are left for \
         another; unmount it and mount it again"
    )]
    Numbers { count: u64 },
    #[error("the last changes cannot be written: {0}")]
    Sync(#[source] forerun_vfs::Error),
    #[error("reading the state that the old process left: {0}")]
    State(#[source] io::Error),
    #[error("the requests of the old process cannot be repeated: {0}")]
    Resend(#[source] io::Error),
    #[error(
        "requests in flight would be lost: this kernel cannot repeat them (Linux 6.9 and later can); unmount it and mount it again"
    )]
    Kernel,
    #[error(
        "the kernel reads files of this mount directly, which a new process cannot take over; unmount it and mount it again"
    )]
    OpenFiles,
    #[error("the mount has ended")]
    Ended,
    #[error("the other process: {0}")]
    Socket(#[source] io::Error),
    /// The other process has an incompatible version.
    #[error("the other process is another version of forerun, which cannot take a mount over")]
    Version,
    /// The supervisor chose another process to serve the mount.
    #[error("the old process still serves the mount")]
    Refused,
    #[error("the process that keeps the mount has ended")]
    NoSupervisor,
    #[error(
        "the image is not the one that is mounted on {} any more: it was changed or replaced",
        path.display()
    )]
    OtherImage { path: PathBuf },
}
