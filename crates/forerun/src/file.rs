//! An open file of an image, with the traits of `std::io`.

use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use forerun_engine::Data;
use forerun_io::{ReadAt, past_end, u64_from, usize_from};
use forerun_vfs::{Bound, FileType, Metadata, NodeId};

use crate::image::Image;

/// Bytes requested at once by sequential reads.
const STEP: usize = 128 << 10;
/// Fewest bytes requested after a seek.
const PAGE: usize = 4 << 10;
/// Bytes requested at once by [`File::contents`], and its largest allocation before any bytes were
/// read.
const LARGE_STEP: usize = 1 << 20;

/// An open regular file of an image.
///
/// It keeps the image open and can be used by any thread. It has a position of its own, and so has
/// each clone. Reads are buffered: a small sequential read costs one copy.
/// [`read_at`](Self::read_at) does not move the position. The file is a [`ReadAt`] too, so that an
/// image inside the image can be [opened](Image::from_source).
///
/// ```
#[doc = include_str!("example.md")]
/// use std::io::{BufRead, Read, Seek, SeekFrom};
///
/// let mut file = forerun::Image::open("x.sqsh")?.file("/etc/hosts")?;
/// let mut name = String::new();
/// file.seek(SeekFrom::Start(10))?;
/// file.read_to_string(&mut name)?;
/// assert_eq!(name, "localhost\n");
///
/// file.rewind()?;
/// assert_eq!(file.lines().count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct File {
    image: Image,
    path: PathBuf,
    node: NodeId,
    metadata: Metadata,
    position: u64,
    /// The bytes read last, and their offset.
    held: Data,
    held_at: u64,
}

impl File {
    /// Opens a node as a file. `path` is its name in errors.
    pub(crate) fn open(image: &Image, path: &Path, node: NodeId) -> forerun_vfs::Result<Self> {
        let reader = image.reader();
        let metadata = reader.fs().metadata(node)?;
        match metadata.kind {
            FileType::Regular => {}
            FileType::Directory => return Err(forerun_vfs::Error::IsADirectory),
            _ => return Err(forerun_vfs::Error::NotAFile),
        }
        reader.open(node)?;
        Ok(Self {
            image: image.clone(),
            path: path.to_path_buf(),
            node,
            metadata,
            position: 0,
            held: Data::default(),
            held_at: 0,
        })
    }

    /// Returns the metadata; [`Metadata::size`] is the length of the file in bytes.
    #[must_use]
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the path by which the file was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the node, for the [`Reader`](crate::Reader) of the image.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Reads from `offset` on without moving the position. Returns the number of bytes read: the
    /// length of `out`, or less at the end of the file.
    ///
    /// ```
    #[doc = include_str!("example.md")]
    /// let file = forerun::Image::open("x.sqsh")?.file("/etc/hosts")?;
    /// let mut bytes = [0; 9];
    /// assert_eq!(file.read_at(10, &mut bytes)?, 9);
    /// assert_eq!(&bytes, b"localhost");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Reader::read`](crate::Reader::read), as the [`io::Error`] of an
    /// [`Error`](crate::Error).
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let read = self.image.reader().read_into(self.node, offset, out);
        read.map_err(|error| self.failed(error))
    }

    pub(crate) fn contents(&self) -> forerun_vfs::Result<Vec<u8>> {
        let reader = self.image.reader();
        let (size, limit) = (self.metadata.size, reader.limits().read_bytes);
        if size > limit {
            let what = format!("length of a file that is read as a whole, {size} bytes,");
            return Err(forerun_vfs::Error::limit(Bound::ReadBytes, what, limit));
        }
        // The image may declare a larger size than it holds.
        let mut contents = Vec::with_capacity(usize_from(size).min(LARGE_STEP));
        let mut sum = reader.fs().file_sum(self.node)?;
        loop {
            let data = reader.read(self.node, u64_from(contents.len()), LARGE_STEP)?;
            if data.is_empty() {
                if let Some(sum) = sum {
                    sum.finish()?;
                }
                return Ok(contents);
            }
            if let Some(sum) = &mut sum {
                sum.take(&data);
            }
            contents.extend_from_slice(&data);
        }
    }

    /// Returns the buffered bytes at the position.
    fn ahead(&self) -> &[u8] {
        let start = self.position.checked_sub(self.held_at);
        let start = start.and_then(|start| usize::try_from(start).ok());
        let held = start.and_then(|start| self.held.get(start..));
        held.unwrap_or_default()
    }

    /// Reads into the buffer if it has no bytes at the position. After a seek, reads at least
    /// `least` bytes.
    fn fill(&mut self, least: usize) -> io::Result<&[u8]> {
        if self.ahead().is_empty() && self.position < self.metadata.size {
            let end = self.held_at + u64_from(self.held.len());
            let len = if self.position == end {
                STEP
            } else {
                least.clamp(PAGE, STEP)
            };
            let read = self.image.reader().read(self.node, self.position, len);
            self.held = read.map_err(|error| self.failed(error))?;
            self.held_at = self.position;
        }
        Ok(self.ahead())
    }

    fn failed(&self, error: forerun_vfs::Error) -> io::Error {
        self.image.failed(&self.path, error).into()
    }
}

impl Read for File {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.ahead().is_empty() && out.len() >= STEP {
            let read = self.read_at(self.position, out)?;
            self.position += u64_from(read);
            (self.held, self.held_at) = (Data::default(), self.position);
            return Ok(read);
        }
        let mut ahead = self.fill(out.len())?;
        let read = ahead.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for File {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.fill(STEP)
    }

    fn consume(&mut self, len: usize) {
        let len = len.min(self.ahead().len());
        self.position += u64_from(len);
    }
}

impl Seek for File {
    /// Moves the position. It may be past the end, where reads return no bytes.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(offset) => self.metadata.size.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or_else(|| {
            let text = "seek to a negative or overflowing position";
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        Ok(self.position)
    }
}

impl ReadAt for File {
    fn len(&self) -> u64 {
        self.metadata.size
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        past_end(offset, out.len(), ReadAt::len(self))?;
        if self.read_at(offset, out)? == out.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    fn is_slow(&self) -> bool {
        self.image.reader().is_slow()
    }
}
