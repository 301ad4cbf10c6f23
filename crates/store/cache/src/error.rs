//! Errors of the cache.

use std::io;
use std::path::{Path, PathBuf};

use crate::{BadGeometry, Digest};

pub type Result<T> = std::result::Result<T, CacheError>;

#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error("{}: cannot {what}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The directory belongs to another user, is open to others, or is not a directory.
    #[error("{}: not used as a cache: {reason}", path.display())]
    Refused { path: PathBuf, reason: &'static str },
    #[error("{}: locked by another process for too long", path.display())]
    Locked { path: PathBuf },
    #[error(transparent)]
    Geometry(#[from] BadGeometry),
    /// The blob has an impossible name or does not match its table.
    #[error("{identity:?} cannot be kept: {reason}")]
    Spec {
        identity: String,
        reason: &'static str,
    },
    /// A blob of this identity is in use and differs in length, chunk size or root.
    #[error("{identity:?} is in use with another length, chunk size or root")]
    Conflict { identity: String },
    #[error("{identity:?} is in use")]
    InUse { identity: String },
    #[error("{identity:?} is not in the cache")]
    Unknown { identity: String },
    #[error("chunk {chunk} has the digest {found}, not {expected}")]
    WrongDigest {
        chunk: u64,
        /// Digest of the chunk in the table.
        expected: Digest,
        found: Digest,
    },
    /// The whole blob does not have the digest that names it. All of it was dropped.
    #[error("the blob has the digest {found}, not {expected}")]
    WrongWhole {
        /// The digest in the blob's name.
        expected: Digest,
        found: Digest,
    },
    #[error("the chunk table cannot be used")]
    Table(#[source] io::Error),
    /// A part of the chunk table does not match the root.
    #[error(
        "the chunk table is damaged at offset {offset}: it does not match the root digest {root}"
    )]
    WrongTable {
        /// Offset in the table.
        offset: u64,
        root: Digest,
    },
    #[error("the chunk table has {len} bytes, not {expected}")]
    TableLength {
        len: u64,
        /// The table length that an image of this size has.
        expected: u64,
    },
    #[error("there is no chunk {chunk}: the image has {chunks}")]
    NoChunk { chunk: u64, chunks: u64 },
    /// The bytes to store do not end at the end of a chunk.
    #[error("{len} bytes from chunk {first} do not end at a chunk boundary")]
    NotChunks { first: u64, len: u64 },
    #[error("chunk {chunk} is not in the cache")]
    Missing { chunk: u64 },
    #[error("line {line} of the access list: {reason}")]
    List {
        /// Line number, from 1.
        line: usize,
        reason: &'static str,
    },
}

impl CacheError {
    /// Converts an error from reading a table. A `CacheError` inside it is unwrapped.
    pub(crate) fn table(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(ours) => ours,
            Err(error) => Self::Table(error),
        }
    }

    /// Returns a closure for `map_err` that adds the operation and the file.
    pub(crate) fn io<'a>(
        what: &'static str,
        path: &'a Path,
    ) -> impl Fn(io::Error) -> Self + use<'a> {
        move |source| Self::Io {
            what,
            path: path.to_path_buf(),
            source,
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Io { source, .. } | Self::Table(source) => source.kind(),
            Self::Refused { .. } => io::ErrorKind::PermissionDenied,
            Self::Locked { .. } => io::ErrorKind::TimedOut,
            Self::Conflict { .. } | Self::InUse { .. } => io::ErrorKind::ResourceBusy,
            Self::Unknown { .. } => io::ErrorKind::NotFound,
            Self::WrongDigest { .. }
            | Self::WrongWhole { .. }
            | Self::WrongTable { .. }
            | Self::TableLength { .. }
            | Self::List { .. } => io::ErrorKind::InvalidData,
            Self::Geometry(_)
            | Self::Spec { .. }
            | Self::NoChunk { .. }
            | Self::NotChunks { .. } => io::ErrorKind::InvalidInput,
            Self::Missing { .. } => io::ErrorKind::WouldBlock,
        }
    }
}

impl From<CacheError> for io::Error {
    fn from(error: CacheError) -> Self {
        Self::new(error.kind(), error)
    }
}
