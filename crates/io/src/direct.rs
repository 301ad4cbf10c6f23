//! Long reads and writes that bypass the page cache (`O_DIRECT`).
//!
//! The data of a mounted volume lies in the page cache of the mount. A second copy, in the page
//! cache of the device below, costs a page of memory per page, and allocating it can take longer
//! than the transfer. Short or unaligned ranges go through the page cache, in which the kernel
//! merges short requests into long ones.
//!
//! Direct and cached requests may be mixed as long as no page is written both ways at once: the
//! kernel writes back the cached pages of a range before it is read or written directly, and drops
//! them after a write. So only whole pages are written directly, and all their bytes belong to the
//! writer.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::aligned::{ALIGNMENT, AlignedBuffer, is_aligned};
use crate::{u64_from, usize_from};

/// Shortest direct read or write. The page cache is faster for shorter ones, because the kernel
/// merges requests and reads ahead.
pub const LEAST: usize = 512 << 10;
const PIECE: usize = 1 << 20;

thread_local! {
    /// A copy of the bytes to write, because the memory of callers is not aligned.
    static BUFFER: RefCell<AlignedBuffer> = const { RefCell::new(AlignedBuffer::new()) };
}

/// A second descriptor of a file or device, opened with `O_DIRECT`.
#[derive(Debug)]
pub struct Direct {
    file: File,
    /// Set once the filesystem has refused a direct transfer.
    is_refused: AtomicBool,
}

impl Direct {
    /// Opens `file` a second time for direct reads, and for writes if `is_written`. `sector` is the
    /// smallest unit of a transfer. Returns `None` if direct I/O is impossible; the caller then
    /// uses the page cache.
    pub fn of(file: &File, sector: u32, is_written: bool) -> Option<Self> {
        if usize::try_from(sector).ok()? > ALIGNMENT {
            return None;
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut options = File::options();
        options.read(true).write(is_written);
        options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        Some(Self {
            file: options.open(path).ok()?,
            is_refused: AtomicBool::new(false),
        })
    }

    /// Fills `out` with the bytes from `offset` on. Parts that cannot be read directly are read
    /// through `file`, the descriptor that was passed to [`of`](Self::of).
    ///
    /// # Errors
    /// The errors of [`FileExt::read_exact_at`].
    pub fn fill(&self, file: &File, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let read = self.read(offset, out)?;
        let (before, after) = out.split_at_mut(read.start);
        file.read_exact_at(before, offset)?;
        let after = &mut after[read.len()..];
        file.read_exact_at(after, offset + u64_from(read.end))
    }

    /// Reads the part of `out` that can be read directly. `offset` is the position of `out`.
    /// Returns the range of the part.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<Range<usize>> {
        let pages = self.pages(offset, out.len());
        let Some(part) = out.get_mut(pages.clone()).filter(|part| is_aligned(part)) else {
            return Ok(0..0);
        };
        if part.is_empty() {
            return Ok(0..0);
        }
        let read = self
            .file
            .read_exact_at(part, offset + u64_from(pages.start));
        self.done(read, pages)
    }

    /// Writes the part of `data` that can be written directly. `offset` is the position of `data`.
    /// Returns the range of the part.
    pub fn write(&self, offset: u64, data: &[u8]) -> io::Result<Range<usize>> {
        let pages = self.pages(offset, data.len());
        let part = &data[pages.clone()];
        if part.is_empty() {
            return Ok(0..0);
        }
        let written = BUFFER.with_borrow_mut(|buffer| {
            buffer.reserve(PIECE);
            let mut at = offset + u64_from(pages.start);
            for piece in part.chunks(PIECE) {
                let room = &mut buffer[..piece.len()];
                room.copy_from_slice(piece);
                self.file.write_all_at(room, at)?;
                at += u64_from(piece.len());
            }
            Ok(())
        });
        self.done(written, pages)
    }

    /// Returns the whole pages of a request, as a range of its buffer; empty if there are too few.
    fn pages(&self, offset: u64, len: usize) -> Range<usize> {
        let page = u64_from(ALIGNMENT);
        let head = usize_from(offset.next_multiple_of(page) - offset);
        let whole = len.saturating_sub(head) / ALIGNMENT * ALIGNMENT;
        if whole < LEAST || self.is_refused.load(Ordering::Relaxed) {
            return 0..0;
        }
        head..head + whole
    }

    /// Returns the transferred range. It is empty if the filesystem refused the transfer, so that
    /// the range goes through the page cache: some filesystems open a file with `O_DIRECT` and
    /// refuse its use.
    fn done(&self, result: io::Result<()>, pages: Range<usize>) -> io::Result<Range<usize>> {
        match result {
            Ok(()) => Ok(pages),
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                self.is_refused.store(true, Ordering::Relaxed);
                Ok(0..0)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direct(len: u64) -> (File, Direct) {
        // The file must be on a disk: a filesystem in memory may have no page cache to bypass.
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.set_len(len).unwrap();
        let direct = Direct::of(&file, 512, true).expect("the tree is on a disk");
        (file, direct)
    }

    #[test]
    fn whole_pages_go_directly_and_the_rest_is_left() {
        let (_file, direct) = direct(1 << 20);
        for (offset, len, expected) in [
            (0, LEAST, 0..LEAST),
            (0, LEAST - 1, 0..0),
            (4096, LEAST + 4095, 0..LEAST),
            (1, LEAST + 8190, 4095..4095 + LEAST),
            (1, LEAST + 4094, 0..0),
            (u64::MAX - 4095, 10, 0..0),
            (7, 3, 0..0),
        ] {
            assert_eq!(direct.pages(offset, len), expected, "{offset} {len}");
        }
    }

    #[test]
    fn both_ways_see_what_the_other_wrote() {
        let (file, direct) = direct(4 << 20);
        let data: Vec<u8> = (0..2_500_000_u32)
            .flat_map(|n| [n.to_le_bytes()[0]])
            .collect();
        file.write_all_at(&[9; 3 << 20], 0).unwrap();
        let part = direct.write(100, &data).unwrap();
        assert_eq!(part, 3996..3996 + 2_494_464);
        let mut seen = vec![0; part.len()];
        file.read_exact_at(&mut seen, 100 + 3996).unwrap();
        assert_eq!(seen, data[part.clone()]);
        file.write_all_at(&[5; 10], 8192).unwrap();
        let mut buffer = AlignedBuffer::new();
        buffer.reserve(1 << 20);
        assert_eq!(direct.read(4096, &mut buffer).unwrap(), 0..1 << 20);
        assert_eq!(buffer[4096..4106], [5; 10], "not yet on the disk");
        assert_eq!(buffer[..4096], data[3996..8092]);
        let mut other = vec![0; (1 << 20) + 1];
        let shifted = if is_aligned(&other) {
            &mut other[1..]
        } else {
            &mut other[..1 << 20]
        };
        assert_eq!(
            direct.read(4096, shifted).unwrap(),
            0..0,
            "memory not aligned"
        );
    }
}
