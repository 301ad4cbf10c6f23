//! The errors of the snapshotter.

use std::io;
use std::path::PathBuf;

/// The result of an operation on snapshots.
pub type Result<T> = std::result::Result<T, Error>;

/// An operation failed. containerd acts by the first three kinds; the others end in its log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No snapshot has this name.
    #[error("snapshot {0:?} does not exist")]
    NotFound(String),
    /// A snapshot has this name already. For a layer that need not be unpacked, this is the success.
    #[error("snapshot {0:?} exists already")]
    Exists(String),
    /// The snapshot is of the wrong kind, or others stand on it.
    #[error("snapshot {name:?} {reason}")]
    State {
        name: String,
        /// The state that is in the way.
        reason: &'static str,
    },
    /// The request makes no sense.
    #[error("{0}")]
    Request(String),
    /// The image, or its server, failed.
    #[error("{image}: {reason}")]
    Image {
        /// The name of the image.
        image: String,
        /// The error of the process that opened it.
        reason: String,
    },
    /// The system refused an operation on a file of the snapshotter.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// A record on disk is damaged.
    #[error("{}: no record of a snapshot: {reason}", path.display())]
    Record {
        path: PathBuf,
        /// The mistake in it.
        reason: String,
    },
    /// The directory cannot be the snapshotter's.
    #[error("{}: {reason}", path.display())]
    Root { path: PathBuf, reason: &'static str },
    /// The service could not be offered.
    #[error("serving: {0}")]
    Serve(String),
}

impl Error {
    /// Returns a function that makes the error of a file from that of the system.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    /// Creates the error of a snapshot in another state than the operation needs.
    pub(crate) fn state(name: &str, reason: &'static str) -> Self {
        let name = name.to_owned();
        Self::State { name, reason }
    }
}
