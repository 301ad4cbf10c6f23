//! A local file or block device as a source.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use crate::{ReadAt, past_end};

/// A regular file or block device, read with `pread`.
///
/// Not memory-mapped: a file that shrinks under a mapping kills the process with SIGBUS, and image
/// files belong to the user.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    len: u64,
}

impl FileSource {
    /// Opens `path` read-only.
    ///
    /// # Errors
    /// What `open` reports, and [`io::ErrorKind::InvalidInput`] for anything but a regular file or
    /// block device.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::from_file(File::open(path)?)
    }

    /// Takes an open file. Its cursor is moved once, to find the length of a block device.
    ///
    /// # Errors
    /// As [`open`](Self::open).
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
        // The engine reads ahead itself, in larger steps than the kernel's; both at once would
        // read twice what a random access needs.
        let _best_effort = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        Ok(Self { file, len })
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

    fn will_need(&self, range: Range<u64>) -> bool {
        let Some(len) = NonZeroU64::new(range.end.saturating_sub(range.start)) else {
            return false;
        };
        let advice = rustix::fs::Advice::WillNeed;
        rustix::fs::fadvise(&self.file, range.start, Some(len), advice).is_ok()
    }

    fn done_with(&self, range: Range<u64>) {
        if let Some(len) = NonZeroU64::new(range.end.saturating_sub(range.start)) {
            let advice = rustix::fs::Advice::DontNeed;
            let _best_effort = rustix::fs::fadvise(&self.file, range.start, Some(len), advice);
        }
    }
}
