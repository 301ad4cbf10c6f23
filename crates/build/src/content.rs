//! The sources of the bytes of a new file.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use forerun_io::{u64_from, usize_from};

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
        file: Arc<File>,
        /// Offset of the first byte.
        offset: u64,
    },
    /// Parts of an open file, and zeros between them: a sparse file of an archive.
    Sparse(Arc<SparseParts>),
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
            Self::Sparse(parts) => write!(f, "Sparse({} parts)", parts.parts.len()),
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
            Self::Sparse(parts) => Box::new(SparseReader::new(Arc::clone(parts), len)),
            Self::Bytes(bytes) => Box::new(io::Cursor::new(Arc::clone(bytes))),
            Self::Other(source) => source.open(len)?,
        })
    }
}

/// Most ranges of data that [`Content::data`] returns.
const RANGES_MAX: usize = 1 << 16;

impl Content {
    /// Returns the ranges of the first `len` bytes that are not holes, in order, or nothing if the contents have no
    /// holes that are known, or more ranges than are worth it. Reads no data.
    ///
    /// # Errors
    /// The errors of opening, and of looking for holes.
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
            // A file that is shorter by now has nothing behind its end.
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
        let want = out.len().min(usize_from(self.left));
        let got = self.file.read_at(&mut out[..want], self.at)?;
        self.at += u64_from(got);
        self.left -= u64_from(got);
        Ok(got)
    }
}

/// Parts of a file that lie one after the other in another file.
#[derive(Debug)]
pub struct SparseParts {
    /// The file that holds them.
    pub file: Arc<File>,
    /// Offset of the first part there.
    pub offset: u64,
    /// Offset in the contents and length of each, in order and apart.
    pub parts: Vec<(u64, u64)>,
}

struct SparseReader {
    parts: Arc<SparseParts>,
    len: u64,
    at: u64,
    /// The first part that does not end before `at`, and the place of its start in the file.
    part: usize,
    stored: u64,
}

impl SparseReader {
    fn new(parts: Arc<SparseParts>, len: u64) -> Self {
        let stored = parts.offset;
        Self {
            parts,
            len,
            at: 0,
            part: 0,
            stored,
        }
    }

    /// Returns the data at or behind the place that was reached; that is nothing at the end where none follows.
    fn data(&mut self) -> Range<u64> {
        while let Some(&(start, len)) = self.parts.parts.get(self.part) {
            // The archive's reader has checked the ends.
            if self.at < start + len {
                return self.at.max(start)..start + len;
            }
            self.part += 1;
            self.stored += len;
        }
        self.len..self.len
    }
}

impl ContentStream for SparseReader {
    fn hole(&mut self) -> io::Result<u64> {
        let data = self.data();
        Ok(data.start.max(self.at) - self.at)
    }

    fn skip(&mut self, len: u64) {
        self.at += len;
    }

    fn next_data(&mut self) -> io::Result<Option<Range<u64>>> {
        Ok(Some(self.data()))
    }

    fn skip_to(&mut self, at: u64) {
        self.at = at;
    }
}

impl Read for SparseReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let data = self.data();
        let want = |len: u64| out.len().min(usize_from(len));
        if data.start > self.at {
            let zeros = want(data.start - self.at);
            out[..zeros].fill(0);
            self.at += u64_from(zeros);
            return Ok(zeros);
        }
        let Some(&(start, _)) = self.parts.parts.get(self.part) else {
            return Ok(0);
        };
        let want = want(data.end - self.at);
        let from = self.stored + (self.at - start);
        let got = self.parts.file.read_at(&mut out[..want], from)?;
        self.at += u64_from(got);
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use forerun_testkit::temp_dir;

    use super::*;

    #[test]
    fn parts_are_read_with_the_zeros_between_them() {
        let dir = temp_dir("parts");
        let path = dir.path().join("file");
        std::fs::write(&path, b"..abcde").unwrap();
        let parts = SparseParts {
            file: Arc::new(File::open(&path).unwrap()),
            offset: 2,
            parts: vec![(0, 1), (4, 3), (8, 1), (10, 0)],
        };
        let content = Content::Sparse(Arc::new(parts));
        let mut bytes = Vec::new();
        let mut stream = content.open(10).unwrap();
        stream.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"a\0\0\0bcd\0e\0");
        let data = content.data(10).unwrap().unwrap();
        assert_eq!(data, [0..1, 4..7, 8..9]);
        let mut stream = content.open(10).unwrap();
        let mut one = [0];
        stream.read_exact(&mut one).unwrap();
        assert_eq!(stream.hole().unwrap(), 3);
        stream.skip(2);
        assert_eq!(stream.hole().unwrap(), 1);
    }
}
