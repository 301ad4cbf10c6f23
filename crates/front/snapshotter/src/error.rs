use std::io;
use std::path::PathBuf;

pub type Result<T> = std::result::Result<T, Error>;

/// Error of an operation on snapshots. containerd acts on `NotFound`, `Exists` and `State`, and
/// logs the others.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("snapshot {0:?} does not exist")]
    NotFound(String),
    /// The name is in use. For a layer that is mounted instead of unpacked, containerd takes this
    /// as success.
    #[error("snapshot {0:?} exists already")]
    Exists(String),
    /// The snapshot is of the wrong kind, or other snapshots depend on it.
    #[error("snapshot {name:?} {reason}")]
    State { name: String, reason: &'static str },
    #[error("{0}")]
    Request(String),
    #[error("{image}: {reason}")]
    Image {
        image: String,
        /// The error message of the process that opened the image.
        reason: String,
    },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: not a record of a snapshot: {reason}", path.display())]
    Record { path: PathBuf, reason: String },
    #[error("{}: {reason}", path.display())]
    Root { path: PathBuf, reason: &'static str },
    #[error("serving: {0}")]
    Serve(String),
}

impl Error {
    /// Returns a function for `map_err` that adds the path to an I/O error.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    pub(crate) fn state(name: &str, reason: &'static str) -> Self {
        let name = name.to_owned();
        Self::State { name, reason }
    }
}
