//! A local file or block device as a source.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::OnceLock;

use rustix::io::ReadWriteFlags;

use crate::direct::{self, Direct};
use crate::{Pattern, ReadAt, past_end, u64_from};

/// Number of probes to find out whether a long range is in the page cache.
const PROBES: u64 = 3;

/// A regular file or block device, read with `pread`.
///
/// Not memory-mapped: a file that shrinks under a mapping kills the process with SIGBUS, and image
/// files belong to the user.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    len: u64,
    /// A descriptor for data that is read once, opened at the first such read.
    direct: OnceLock<Option<Direct>>,
    /// A second descriptor for long sequential reads, with kernel readahead, opened at the first
    /// such read.
    forward: OnceLock<Option<File>>,
}

impl FileSource {
    /// Opens `path` read-only.
    ///
    /// # Errors
    /// The errors of `open`, and [`io::ErrorKind::InvalidInput`] for anything but a regular file or
    /// block device.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::from_file(File::open(path)?)
    }

    /// Takes an open file. Seeks in it, to find the length of a block device.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn from_file(mut file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let len = if metadata.is_file() {
            metadata.len()
        } else if metadata.file_type().is_block_device() {
            file.seek(SeekFrom::End(0))?
        } else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file or block device",
            ));
        };
        // The engine reads ahead itself, in larger steps than the kernel. Both together would read
        // twice as much as a random access needs.
        let _best_effort = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        Ok(Self {
            file,
            len,
            direct: OnceLock::new(),
            forward: OnceLock::new(),
        })
    }

    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Opens the descriptors for long reads now rather than at their first use, for a process that
    /// loses the right to open files.
    pub fn open_all(&self) {
        let _second = self.forward();
        let _third = self.direct();
    }

    fn direct(&self) -> Option<&Direct> {
        // The sector size of a device is not needed, because a refused transfer goes through the
        // page cache.
        let opened = || Direct::of(&self.file, 512, false);
        self.direct.get_or_init(opened).as_ref()
    }

    /// Returns the second descriptor, for sequential reads. On a descriptor advised as random, long
    /// reads fill the page cache page by page, and each page is a separate part of the request to
    /// the disk. That takes 1.5 times as long, and most of the CPU time. Ahead of a sequential
    /// reader the kernel fills the cache with large folios.
    fn forward(&self) -> &File {
        let path = || format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let opened = self.forward.get_or_init(|| File::open(path()).ok());
        opened.as_ref().unwrap_or(&self.file)
    }

    /// Reads past the page cache unless the bytes are cached: allocating fresh pages costs more
    /// than the read does.
    fn read_once(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.direct() {
            Some(direct) if !self.is_cached(offset, out.len()) => {
                direct.fill(&self.file, offset, out)
            }
            _ => self.file.read_exact_at(out, offset),
        }
    }

    /// Probes whether `len` bytes from `offset` on are in the page cache.
    fn is_cached(&self, offset: u64, len: usize) -> bool {
        let step = u64_from(len) / PROBES;
        (0..PROBES).all(|n| {
            let mut byte = [0];
            // One probe per step of the range, at a different offset in each step, because an
            // earlier reader may have had steps of its own.
            let place = offset + n * step + step / 2 / (n + 1);
            let read = rustix::io::preadv2(
                &self.file,
                &mut [io::IoSliceMut::new(&mut byte)],
                place,
                ReadWriteFlags::NOWAIT,
            );
            read == Ok(1)
        })
    }
}

impl ReadAt for FileSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        past_end(offset, out.len(), self.len)?;
        self.file.read_exact_at(out, offset)
    }

    fn read_ahead_at(&self, offset: u64, out: &mut [u8], pattern: Pattern) -> io::Result<()> {
        past_end(offset, out.len(), self.len)?;
        match pattern {
            _ if out.len() < direct::LEAST => self.file.read_exact_at(out, offset),
            Pattern::Scattered | Pattern::Single => self.file.read_exact_at(out, offset),
            Pattern::Forward => self.forward().read_exact_at(out, offset),
            Pattern::Once => self.read_once(offset, out),
        }
    }

    fn will_need(&self, range: Range<u64>) -> bool {
        let Some(len) = NonZeroU64::new(range.end - range.start) else {
            return false;
        };
        let advice = rustix::fs::Advice::WillNeed;
        rustix::fs::fadvise(&self.file, range.start, Some(len), advice).is_ok()
    }

    fn done_with(&self, range: Range<u64>) {
        if let Some(len) = NonZeroU64::new(range.end - range.start) {
            let advice = rustix::fs::Advice::DontNeed;
            let _best_effort = rustix::fs::fadvise(&self.file, range.start, Some(len), advice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 3 << 20;

    /// Creates a file on a disk, with none of its bytes in the page cache.
    fn cold() -> (tempfile::NamedTempFile, Vec<u8>) {
        let bytes: Vec<u8> = (0..LEN).map(|n| (n / 7 % 251).to_le_bytes()[0]).collect();
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        file.as_file().sync_all().unwrap();
        let source = FileSource::open(file.path()).unwrap();
        source.done_with(0..source.len());
        (file, bytes)
    }

    fn aligned(len: usize) -> crate::AlignedBuffer {
        let mut buffer = crate::AlignedBuffer::new();
        buffer.reserve(len);
        buffer
    }

    fn read(source: &FileSource, at: usize, out: &mut [u8], pattern: Pattern) -> io::Result<()> {
        source.read_ahead_at(u64_from(at), out, pattern)
    }

    #[test]
    fn what_is_read_once_is_the_same_and_not_kept() {
        let (file, bytes) = cold();
        let source = FileSource::open(file.path()).unwrap();
        let mut buffer = aligned(LEN);
        read(&source, 0, &mut buffer[..LEN], Pattern::Once).unwrap();
        assert!(buffer[..LEN] == bytes);
        assert!(!source.is_cached(0, LEN), "went through the page cache");
        for (offset, len) in [(4096, 1 << 20), (1, LEN - 1), (5000, 600_000), (0, 10)] {
            let out = &mut buffer[..len];
            for pattern in [Pattern::Once, Pattern::Forward, Pattern::Scattered] {
                out.fill(0);
                read(&source, offset, out, pattern).unwrap();
                assert!(out == &bytes[offset..offset + len], "{offset} {len}");
            }
        }
        for pattern in [Pattern::Once, Pattern::Forward, Pattern::Scattered] {
            let past = read(&source, 1, &mut buffer[..LEN], pattern);
            assert_eq!(past.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn what_is_in_memory_is_taken_from_there() {
        let (file, bytes) = cold();
        let source = FileSource::open(file.path()).unwrap();
        let mut buffer = aligned(LEN);
        source.read_exact_at(0, &mut buffer[..LEN]).unwrap();
        assert!(source.is_cached(0, LEN));
        read(&source, 0, &mut buffer[..LEN], Pattern::Once).unwrap();
        assert!(buffer[..LEN] == bytes);
        assert!(source.direct.get().is_some());
    }
}
