//! Errors of the cache.

use std::io;
use std::path::{Path, PathBuf};

use crate::{BadGeometry, Digest};

/// Result of an operation on the cache.
pub type Result<T> = std::result::Result<T, CacheError>;

/// An error of the cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// A system call failed.
    #[error("{}: cannot {what}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A directory that belongs to another user or is open to others, or that is no directory.
    #[error("{}: not used as a cache: {reason}", path.display())]
    Refused { path: PathBuf, reason: &'static str },
    /// A lock was held by others for too long.
    #[error("{}: locked by another process for too long", path.display())]
    Locked { path: PathBuf },
    /// An impossible length or chunk size.
    #[error(transparent)]
    Geometry(#[from] BadGeometry),
    /// A blob that cannot be named or does not match its table.
    #[error("{identity:?} cannot be kept: {reason}")]
    Spec {
        identity: String,
        reason: &'static str,
    },
    /// A blob of this identity is in use and differs in length, chunk size or root.
    #[error("{identity:?} is in use with another length, chunk size or root")]
    Conflict { identity: String },
    /// A blob that cannot be removed now.
    #[error("{identity:?} is in use")]
    InUse { identity: String },
    /// No blob of this identity.
    #[error("{identity:?} is not in the cache")]
    Unknown { identity: String },
    /// Bytes that are not those of the chunk.
    #[error("chunk {chunk} has the digest {found}, not {expected}")]
    WrongDigest {
        /// Number of the chunk.
        chunk: u64,
        /// The digest in the table.
        expected: Digest,
        /// The digest of the bytes.
        found: Digest,
    },
    /// A whole blob does not have the digest in its name. All of it was dropped.
    #[error("the blob has the digest {found}, not {expected}")]
    WrongWhole {
        /// The digest that names it.
        expected: Digest,
        /// The digest of its bytes.
        found: Digest,
    },
    /// The chunk table could not be read or is wrong.
    #[error("the chunk table cannot be used")]
    Table(#[source] io::Error),
    /// A part of a chunk table that does not lead to the root.
    #[error(
        "the chunk table is damaged at offset {offset}: it does not match the root digest {root}"
    )]
    WrongTable {
        /// Offset in the table.
        offset: u64,
        root: Digest,
    },
    /// A chunk table of the wrong length.
    #[error("the chunk table has {len} bytes, not {expected}")]
    TableLength {
        len: u64,
        /// The length that a table of this image must have.
        expected: u64,
    },
    /// A chunk behind the end.
    #[error("there is no chunk {chunk}: the image has {chunks}")]
    NoChunk {
        chunk: u64,
        /// Number of chunks of the image.
        chunks: u64,
    },
    /// Bytes to store that do not end with a chunk.
    #[error("{len} bytes from chunk {first} do not end at a chunk boundary")]
    NotChunks { first: u64, len: u64 },
    /// The requested bytes are not in the cache.
    #[error("chunk {chunk} is not in the cache")]
    Missing {
        /// The first chunk that is missing.
        chunk: u64,
    },
    /// A malformed access list.
    #[error("line {line} of the access list: {reason}")]
    List {
        /// Number of the line, from 1.
        line: usize,
        reason: &'static str,
    },
}

impl CacheError {
    /// Converts an error of a table, without wrapping one of ours twice.
    pub(crate) fn table(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(ours) => ours,
            Err(error) => Self::Table(error),
        }
    }

    /// Returns a function for `map_err`, with the operation and the file.
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
