//! Why a mount was not handed over.

use std::io;
use std::path::PathBuf;

/// Why a mount was not handed over. The process that served it goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandoverError {
    /// The mount can be written to, and was made to end with its process.
    #[error("the volume may have changes that are not written yet; unmount it and mount it again")]
    Volume,
    /// Files that are open have no name by which another process could find them.
    #[error("{count} removed files are still open; try again when they are closed")]
    Nameless { count: usize },
    /// The number of this server is the last one that inode numbers have room for.
    #[error(
        "{count} processes have served the mount before this one, and inode numbers have no room for \
         another; unmount it and mount it again"
    )]
    Numbers { count: u64 },
    /// The changes cannot be made durable.
    #[error("the last changes cannot be written: {0}")]
    Sync(#[source] forerun_vfs::Error),
    /// The state table of the server before this one cannot be read.
    #[error("reading the state that the old process left: {0}")]
    State(#[source] io::Error),
    /// The kernel does not send requests again.
    #[error("the requests of the old process cannot be repeated: {0}")]
    Resend(#[source] io::Error),
    /// Requests under way would be lost.
    #[error(
        "requests in flight would be lost: this kernel cannot repeat them (Linux 6.9 and later can); unmount it and mount it again"
    )]
    Kernel,
    /// The kernel reads files by itself, and the mount was made without a state table.
    #[error(
        "the kernel reads files of this mount directly, which a new process cannot take over; unmount it and mount it again"
    )]
    OpenFiles,
    /// The mount has ended.
    #[error("the mount has ended")]
    Ended,
    /// The socket between the processes failed.
    #[error("the other process: {0}")]
    Socket(#[source] io::Error),
    /// The other process has a version with other messages.
    #[error("the other process is another version of forerun, which cannot take a mount over")]
    Version,
    /// The supervisor lets another process serve the mount.
    #[error("the old process still serves the mount")]
    Refused,
    /// The supervisor has ended.
    #[error("the process that keeps the mount has ended")]
    NoSupervisor,
    /// The image is another one than the one that is mounted.
    #[error(
        "the image is not the one that is mounted on {} any more: it was changed or replaced",
        path.display()
    )]
    OtherImage {
        /// Where it is mounted.
        path: PathBuf,
    },
}
