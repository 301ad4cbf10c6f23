//! Why a mount was not handed over.

use std::io;
use std::path::PathBuf;

/// Why a mount was not handed over. The process that served it goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandoverError {
    /// The mount can be written to, and was made to end with its process.
    #[error(
        "the volume is mounted for writing, and what is not written yet is known to its process \
         only; unmount it and mount it again"
    )]
    Volume,
    /// Files that are open have no name by which another process could find them.
    #[error(
        "{count} files are open that were removed, which only the process that serves them can \
         keep; try again when they are closed"
    )]
    Nameless { count: usize },
    /// The changes cannot be made durable.
    #[error("what was changed cannot be brought to the device: {0}")]
    Sync(#[source] forerun_vfs::Error),
    /// The state table of the server before this one cannot be read.
    #[error("what the process before this one has written down of the mount: {0}")]
    State(#[source] io::Error),
    /// The kernel does not send requests again.
    #[error("requests that the process before this one took are not sent again: {0}")]
    Resend(#[source] io::Error),
    /// Requests under way would be lost.
    #[error(
        "this kernel cannot send requests again that a process took and did not answer (Linux 6.9 \
         and later can), so those under way would be lost; unmount it and mount it again"
    )]
    Kernel,
    /// The kernel reads files by itself, and the mount was made without a state table.
    #[error(
        "the kernel reads files by itself that are known to the process of the mount only; unmount \
         it and mount it again"
    )]
    OpenFiles,
    /// The mount has ended.
    #[error("the mount has ended")]
    Ended,
    /// The socket between the processes failed.
    #[error("the other process: {0}")]
    Socket(#[source] io::Error),
    /// The other process has a version with other messages.
    #[error("the other process is of another version of forerun, which takes nothing over")]
    Version,
    /// The supervisor lets another process serve the mount.
    #[error("the process that serves the mount goes on serving it")]
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
