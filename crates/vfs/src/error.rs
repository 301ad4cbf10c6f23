//! The error of every driver and of the engine.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::{BlobId, BlobName, NodeId};

/// The result of the fallible calls of this crate's traits.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, classified by what the caller can do about it. Cheap to clone: all readers that waited
/// for one read get the same error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("no such file or directory")]
    NotFound,
    #[error("not a directory")]
    NotADirectory,
    #[error("is a directory")]
    IsADirectory,
    #[error("not a symbolic link")]
    NotASymlink,
    #[error("not a regular file")]
    NotAFile,
    /// The path has more symbolic links than [`Limits::symlink_hops`](crate::Limits::symlink_hops).
    #[error("too many levels of symbolic links")]
    SymlinkLoop,
    /// A directory lies below itself, so a walk would never end.
    #[error(
        "directory {node} lies below itself at /{}",
        String::from_utf8_lossy(path)
    )]
    DirectoryLoop {
        node: NodeId,
        /// The path at which the walk met the directory again.
        path: Vec<u8>,
    },
    /// The id names no node of this filesystem.
    #[error("no such node: {0}")]
    StaleNode(NodeId),
    /// The image or the request exceeds one of the [`Limits`](crate::Limits).
    #[error("{what} exceeds the limit of {limit}")]
    Limit {
        bound: Bound,
        /// What exceeds the limit, and where.
        what: String,
        limit: u64,
    },
    /// The image is valid but uses a feature that this driver does not know.
    #[error("not supported: {0}")]
    Unsupported(String),
    #[error("file exists")]
    Exists,
    #[error("directory not empty")]
    NotEmpty,
    #[error("a directory cannot be moved into itself")]
    IntoItself,
    #[error("invalid name: {0}")]
    InvalidName(String),
    #[error("invalid name: longer than {limit} {unit}")]
    NameTooLong {
        /// Most units that a name may have.
        limit: usize,
        /// The unit of the limit: bytes, or the units of the format's encoding.
        unit: &'static str,
    },
    /// The volume has no free space, or none that the operation can use.
    #[error("no space left on the volume")]
    NoSpace,
    /// The file would be longer than the format or the volume can hold.
    #[error("file too large")]
    TooLarge,
    /// The volume was opened read-only, or takes no more changes after a failure.
    #[error("read-only volume: {0}")]
    ReadOnly(String),
    /// The device could not be written or flushed.
    #[error("writing {len} bytes at offset {offset:#x}: {source}")]
    Write {
        /// Offset in the image of the failed write.
        offset: u64,
        /// Length of the write; 0 for a flush.
        len: u64,
        source: Arc<io::Error>,
    },
    /// No driver, or not the requested one, recognises the image.
    #[error("not {}: {found}", described(expected.as_deref()))]
    UnknownFormat {
        /// The format that the caller requested, if any.
        expected: Option<String>,
        /// A description of the bytes that were found.
        found: String,
    },
    #[error(transparent)]
    Corrupt(Corrupt),
    /// Decoded bytes could not be written to a temporary file.
    #[error("writing decoded data to a temporary file: {source}")]
    Spool { source: Arc<io::Error> },
    /// Data outside the image could not be opened.
    #[error("opening {name}: {source}")]
    Blob {
        name: BlobName,
        source: Arc<io::Error>,
    },
    #[error("reading {len} bytes at offset {offset:#x}: {source}")]
    Io {
        /// Offset in the image of the failed read.
        offset: u64,
        len: u64,
        source: Arc<io::Error>,
    },
}

fn described(format: Option<&str>) -> String {
    match format {
        None => "an image of a known format".to_string(),
        Some(name) if name.starts_with(['a', 'e', 'i', 'o']) => format!("an {name} image"),
        Some(name) => format!("a {name} image"),
    }
}

impl Error {
    #[must_use]
    pub fn io(offset: u64, len: usize, source: io::Error) -> Self {
        Self::Io {
            offset,
            len: forerun_io::u64_from(len),
            source: Arc::new(source),
        }
    }

    /// Creates the error of a failed write, or of a failed flush if `len` is 0.
    #[must_use]
    pub fn write(offset: u64, len: usize, source: io::Error) -> Self {
        Self::Write {
            offset,
            len: forerun_io::u64_from(len),
            source: Arc::new(source),
        }
    }

    /// Returns whether the volume, or the filesystem that holds the image, has no room for a write.
    /// No data is lost: the same write succeeds once there is room. A flush that fails for lack of
    /// room is different, because the kernel may have dropped the data.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::NoSpace => true,
            Self::Write { len, source, .. } => *len > 0 && is_for_want_of_room(source),
            _ => false,
        }
    }

    /// Creates the error of a blob that the image does not have.
    #[must_use]
    pub fn no_blob(blob: BlobId) -> Self {
        Self::Unsupported(format!("data outside the image (blob {})", blob.0))
    }

    #[must_use]
    pub fn blob(name: BlobName, source: io::Error) -> Self {
        Self::Blob {
            name,
            source: Arc::new(source),
        }
    }

    #[must_use]
    pub fn spool(source: io::Error) -> Self {
        Self::Spool {
            source: Arc::new(source),
        }
    }

    pub fn limit(bound: Bound, what: impl Into<String>, limit: u64) -> Self {
        Self::Limit {
            bound,
            what: what.into(),
            limit,
        }
    }

    /// Adds the name of the image that the error is about, if the tree consists of several images.
    /// Errors that are not about an image stay unchanged.
    #[must_use]
    pub fn in_image(self, image: &Arc<str>) -> Self {
        let of_image = |what: String| format!("{image}: {what}");
        match self {
            Self::Corrupt(corrupt) => Self::Corrupt(corrupt.in_image(image)),
            Self::Io {
                offset,
                len,
                source,
            } => Self::Io {
                offset,
                len,
                source: Arc::new(io_in_image(image, source)),
            },
            Self::Blob { name, source } => Self::Blob {
                name,
                source: Arc::new(io_in_image(image, source)),
            },
            Self::Limit { bound, what, limit } => Self::Limit {
                bound,
                what: of_image(what),
                limit,
            },
            Self::Unsupported(what) => Self::Unsupported(of_image(what)),
            Self::UnknownFormat { expected, found } => Self::UnknownFormat {
                expected,
                found: of_image(found),
            },
            other => other,
        }
    }

    /// Returns a short stable name of the kind of error, for JSON output and tests.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::NotADirectory => "not_a_directory",
            Self::IsADirectory => "is_a_directory",
            Self::NotASymlink => "not_a_symlink",
            Self::NotAFile => "not_a_file",
            Self::SymlinkLoop => "symlink_loop",
            Self::DirectoryLoop { .. } => "directory_loop",
            Self::StaleNode(_) => "stale_node",
            Self::Limit { .. } => "limit",
            Self::Unsupported(_) => "unsupported",
            Self::Exists => "exists",
            Self::NotEmpty => "not_empty",
            Self::IntoItself => "into_itself",
            Self::InvalidName(_) | Self::NameTooLong { .. } => "invalid_name",
            Self::NoSpace => "no_space",
            Self::TooLarge => "too_large",
            Self::ReadOnly(_) => "read_only",
            Self::Write { .. } => "write",
            Self::UnknownFormat { .. } => "unknown_format",
            Self::Corrupt(_) => "corrupt",
            Self::Spool { .. } => "spool",
            Self::Blob { .. } => "blob",
            Self::Io { .. } => "io",
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{image}: {source}")]
struct InImage {
    image: Arc<str>,
    source: Arc<io::Error>,
}

/// Adds the name of an image to the error of its source, whose kind stays the same.
fn io_in_image(image: &Arc<str>, source: Arc<io::Error>) -> io::Error {
    let image = Arc::clone(image);
    io::Error::new(source.kind(), InImage { image, source })
}

/// Returns whether the filesystem is full, or the user's quota is used up.
#[must_use]
pub fn is_for_want_of_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// The limit that was reached. Limits that a caller may want to raise have a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bound {
    /// [`Limits::depth`](crate::Limits::depth).
    Depth,
    /// [`Limits::dir_entries`](crate::Limits::dir_entries) or
    /// [`Limits::tree_entries`](crate::Limits::tree_entries).
    Entries,
    /// [`Limits::total_bytes`](crate::Limits::total_bytes).
    TotalBytes,
    /// [`Limits::walk_bytes`](crate::Limits::walk_bytes).
    WalkMemory,
    /// [`Limits::read_bytes`](crate::Limits::read_bytes).
    ReadBytes,
    /// [`Limits::stream_bytes`](crate::Limits::stream_bytes).
    StreamBytes,
    /// The memory that decodes a compressed file as one stream.
    DecoderMemory,
    /// Any other limit, of [`Limits`](crate::Limits) or of a driver.
    Other,
}

/// A failed check of an image: which check, where, and the numbers.
///
/// The type of the check is private to the driver; its text has the numbers needed to find the
/// bytes.
#[derive(Clone)]
pub struct Corrupt {
    format: &'static str,
    image: Option<Arc<str>>,
    node: Option<NodeId>,
    offset: u64,
    check: Arc<dyn std::error::Error + Send + Sync>,
}

impl Corrupt {
    /// Creates the error of a `check` that failed at byte `offset` of the image, while `node` was
    /// read.
    pub fn new(
        format: &'static str,
        node: Option<NodeId>,
        offset: u64,
        check: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self {
            format,
            image: None,
            node,
            offset,
            check: Arc::new(check),
        }
    }

    /// Adds the name of the image, if the tree consists of several images. An existing name stays.
    #[must_use]
    pub fn in_image(mut self, image: &Arc<str>) -> Self {
        self.image.get_or_insert_with(|| Arc::clone(image));
        self
    }

    /// Returns the name of the image, if the tree consists of several images.
    #[must_use]
    pub fn image(&self) -> Option<&str> {
        self.image.as_deref()
    }

    #[must_use]
    pub const fn format(&self) -> &'static str {
        self.format
    }

    /// Returns the node that was being read, if any.
    #[must_use]
    pub const fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// Returns the offset in the image of the bytes that failed the check.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the driver's check, which that driver's own tests downcast.
    #[must_use]
    pub fn check(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        &*self.check
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "damaged {} image", self.format)?;
        if let Some(image) = &self.image {
            write!(f, " {image}")?;
        }
        write!(f, ": ")?;
        if let Some(node) = self.node {
            write!(f, "node {node}, ")?;
        }
        write!(f, "offset {:#x}: {}", self.offset, self.check)
    }
}

impl fmt::Debug for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Corrupt({self})")
    }
}

impl std::error::Error for Corrupt {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.check.source()
    }
}

impl From<Corrupt> for Error {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_one_of_several_images_and_stay_of_their_kind() {
        let image: Arc<str> = "base.img".into();
        let corrupt = Corrupt::new("memfs", None, 16, crate::NameError::Dots);
        let eof = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let device = || BlobName::Device {
            index: 1,
            tag: Vec::new(),
        };
        for (error, expected) in [
            (
                corrupt.into(),
                "damaged memfs image base.img: offset 0x10: name is . or ..",
            ),
            (
                Error::io(8, 4, eof()),
                "reading 4 bytes at offset 0x8: base.img: unexpected end of file",
            ),
            (
                Error::blob(device(), eof()),
                "opening device 1: base.img: unexpected end of file",
            ),
            (
                Error::limit(Bound::Other, "number of nodes", 7),
                "base.img: number of nodes exceeds the limit of 7",
            ),
            (
                Error::Unsupported("a feature".to_string()),
                "not supported: base.img: a feature",
            ),
            (Error::NotFound, "no such file or directory"),
        ] {
            let kind = error.kind();
            let named = error.in_image(&image);
            assert_eq!(named.to_string(), expected);
            assert_eq!(named.kind(), kind);
            if let Error::Io { source, .. } = &named {
                assert_eq!(source.kind(), io::ErrorKind::UnexpectedEof);
            }
        }
    }
}
