//! The sources of the bytes of a new file.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use forerun_io::{u64_from, usize_from};
use forerun_vfs::Extent;

use super::host::HostFile;
use super::sparse::SparseFile;
use super::stream::ContentStream;

/// The contents of a new regular file. [`NodeKind::File`](super::NodeKind::File) stores the length.
#[derive(Clone)]
pub enum Content {
    /// A file of the host. It is opened when it is read.
    Host(HostFile),
    /// A range of an open file, such as a temporary file.
    Part {
        file: Arc<File>,
        /// Offset of the first byte.
        offset: u64,
    },
    Bytes(Arc<[u8]>),
    /// Any other source, such as a file of another image.
    Other(Arc<dyn ContentSource>),
}

/// A source of contents from another crate.
pub trait ContentSource: std::fmt::Debug + Send + Sync {
    /// Returns a stream of the first `len` bytes.
    fn open(&self, len: u64) -> io::Result<Box<dyn ContentStream>>;

    /// Returns where the image that has the first `len` bytes stores them.
    fn extents(&self, len: u64) -> io::Result<Vec<Extent>>;
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
    /// tree says if a host file has changed; the writer must check that.
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

/// Maximum number of data ranges that [`Content::data`] returns.
const RANGES_MAX: usize = 1 << 16;

impl Content {
    /// Returns where an image stores the first `len` bytes. Empty if no image has them.
    pub fn extents(&self, len: u64) -> io::Result<Vec<Extent>> {
        match self {
            Self::Other(source) => source.extents(len),
            Self::Host(_) | Self::Part { .. } | Self::Bytes(_) => Ok(Vec::new()),
        }
    }

    /// Returns the data ranges of the first `len` bytes in order, without reading data. Returns
    /// `None` if no holes are known, or if there are too many ranges to be useful.
    pub fn data(&self, len: u64) -> io::Result<Option<Vec<Range<u64>>>> {
        if matches!(self, Self::Part { .. } | Self::Bytes(_)) {
            return Ok(None);
        }
        let mut stream = self.open(len)?;
        let (mut at, mut found) = (0, Vec::new());
        while at < len {
            let next = stream.next_data()?;
            let Some(next) = next else { return Ok(None) };
            let (start, end) = (next.start.min(len), next.end.min(len));
            if start < end {
                found.push(start..end);
            }
            // The file is shorter by now, so no data follows.
            if found.len() > RANGES_MAX || end <= at {
                return Ok(None);
            }
            at = end;
            stream.skip_to(at);
        }
        let is_dense = matches!(found.as_slice(), [only] if *only == (0..len));
        Ok((!is_dense).then_some(found))
    }
}

/// Returns whether all bytes are zeros, in steps that the compiler turns into wide loads.
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
        let want = out.len().min(usize_from(self.left));
        let got = self.file.read_at(&mut out[..want], self.at)?;
        self.at += u64_from(got);
        self.left -= u64_from(got);
        Ok(got)
    }
}
