//! The sources of the bytes of a new file.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::host::HostFile;
use super::sparse::SparseFile;
use super::stream::ContentStream;

/// The contents of a new regular file; its length is in [`NodeKind::File`](super::NodeKind::File).
#[derive(Clone)]
pub enum Content {
    /// A file of the host, opened when it is read.
    Host(HostFile),
    /// A part of an open file: an entry of a seekable archive, or of a spool file.
    Part {
        /// The file.
        file: Arc<File>,
        /// Offset of the first byte.
        offset: u64,
    },
    /// Bytes in memory.
    Bytes(Arc<[u8]>),
    /// Any other source, such as a file of another image.
    Other(Arc<dyn ContentSource>),
}

/// A source of contents that this crate does not know.
pub trait ContentSource: std::fmt::Debug + Send + Sync {
    /// Returns a stream of the first `len` bytes.
    ///
    /// # Errors
    /// The errors of opening.
    fn open(&self, len: u64) -> io::Result<Box<dyn ContentStream>>;
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(file) => write!(f, "Host({})", file.path().display()),
            Self::Part { offset, .. } => write!(f, "Part(at {offset})"),
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::Other(source) => source.fmt(f),
        }
    }
}

impl Content {
    /// Opens a stream of the contents from the start. It may return more or fewer bytes than the
    /// tree says if a host file changed meanwhile: the writer must notice.
    ///
    /// # Errors
    /// The errors of opening a host file.
    pub fn open(&self, len: u64) -> io::Result<Box<dyn ContentStream>> {
        Ok(match self {
            Self::Host(file) => match SparseFile::new(file.open()?)? {
                Ok(sparse) => Box::new(sparse),
                Err(dense) => Box::new(dense),
            },
            Self::Part { file, offset } => Box::new(PartReader {
                file: Arc::clone(file),
                at: *offset,
                left: len,
            }),
            Self::Bytes(bytes) => Box::new(io::Cursor::new(Arc::clone(bytes))),
            Self::Other(source) => source.open(len)?,
        })
    }
}

/// Returns whether bytes are all zeros, in steps that the compiler turns into wide loads.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    let mut chunks = bytes.chunks(64);
    chunks.all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}

struct PartReader {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl ContentStream for PartReader {}

impl Read for PartReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let want = out.len().min(forerun_io::saturating_usize(self.left));
        let got = self.file.read_at(&mut out[..want], self.at)?;
        self.at += forerun_io::u64_from(got);
        self.left -= forerun_io::u64_from(got);
        Ok(got)
    }
}
