//! A local file or block device that can be written.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Advice, FallocateFlags, OFlags};
use rustix::io::Errno;

use crate::direct::Direct;
use crate::{BlockDevice, ReadAt, past_end, u64_from};

/// A regular file or block device, read with `pread` and written with `pwrite`. Long aligned ranges
/// bypass the page cache if the file allows it.
///
/// Not memory-mapped, for the reasons given at [`FileSource`](crate::FileSource), and because a
/// failed write through a mapping is a signal, not an error.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    direct: Option<Direct>,
    len: u64,
    sector: u32,
    is_block_device: bool,
}

impl FileDevice {
    /// Opens `path` for reading and writing. A block device is opened exclusively, so that it is
    /// not mounted at the same time.
    ///
    /// # Errors
    /// The errors of `open` (`EBUSY` for a device in use), and [`io::ErrorKind::InvalidInput`] for
    /// anything but a regular file or block device.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).write(true);
        // O_EXCL without O_CREAT has a meaning only for block devices.
        if path.metadata()?.file_type().is_block_device() {
            options.custom_flags(OFlags::EXCL.bits().cast_signed());
        }
        Self::from_file(options.open(path)?)
    }

    /// Takes a file that is open for reading and writing. Seeks in it, to find the length of a
    /// block device.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn from_file(mut file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let (len, sector) = if metadata.is_file() {
            (metadata.len(), 512)
        } else if metadata.file_type().is_block_device() {
            let len = file.seek(SeekFrom::End(0))?;
            (len, rustix::fs::ioctl_blksszget(&file)?)
        } else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file or block device",
            ));
        };
        // Kernel readahead stays on: the callers of a volume choose their own steps, often without
        // readahead.
        let _best_effort = rustix::fs::fadvise(&file, 0, None, Advice::Normal);
        Ok(Self {
            is_block_device: !metadata.is_file(),
            direct: Direct::of(&file, sector, true),
            file,
            len,
            sector,
        })
    }

    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }
}

impl ReadAt for FileDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        past_end(offset, out.len(), self.len)?;
        match &self.direct {
            Some(direct) => direct.fill(&self.file, offset, out),
            None => self.file.read_exact_at(out, offset),
        }
    }

    /// Asks the kernel to read the range into the page cache.
    fn will_need(&self, range: Range<u64>) -> bool {
        let Some(len) = NonZeroU64::new(range.end - range.start) else {
            return false;
        };
        rustix::fs::fadvise(&self.file, range.start, Some(len), Advice::WillNeed).is_ok()
    }
}

impl BlockDevice for FileDevice {
    fn sector_size(&self) -> u32 {
        self.sector
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        past_end(offset, data.len(), self.len)?;
        let written = match &self.direct {
            Some(direct) => direct.write(offset, data)?,
            None => 0..0,
        };
        let (before, after) = data.split_at(written.start);
        self.file.write_all_at(before, offset)?;
        self.file
            .write_all_at(&after[written.len()..], offset + u64_from(written.end))
    }

    /// Punches a hole in a file. On a block device, the kernel or the disk itself writes zeros.
    fn write_zeros(&self, range: Range<u64>) -> io::Result<bool> {
        let mode = if self.is_block_device {
            FallocateFlags::ZERO_RANGE
        } else {
            FallocateFlags::PUNCH_HOLE
        };
        self.fallocate(mode, range)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Punches a hole. A file returns the space to its filesystem; a block device discards the
    /// range if it can do so without writing zeros. The range then reads as zeros.
    fn discard(&self, range: Range<u64>) -> io::Result<bool> {
        self.fallocate(FallocateFlags::PUNCH_HOLE, range)
    }
}

impl FileDevice {
    fn fallocate(&self, mode: FallocateFlags, range: Range<u64>) -> io::Result<bool> {
        let len = range.end - range.start;
        if len == 0 || range.end > self.len {
            return Ok(false);
        }
        let flags = mode | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, range.start, len) {
            Ok(()) => Ok(true),
            // Not supported, or not for a range with this alignment.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(len: u64) -> FileDevice {
        let file = tempfile::tempfile().unwrap();
        file.set_len(len).unwrap();
        FileDevice::from_file(file).unwrap()
    }

    #[test]
    fn writes_are_read_back_and_never_grow_the_file() {
        let device = device(4096);
        device.write_all_at(4090, b"abcdef").unwrap();
        let mut out = [0; 6];
        device.read_exact_at(4090, &mut out).unwrap();
        assert_eq!(&out, b"abcdef");
        for offset in [4091, 4096, u64::MAX] {
            let error = device.write_all_at(offset, b"abcdef").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{offset}");
        }
        device.flush().unwrap();
        assert_eq!(device.file().metadata().unwrap().len(), 4096);
    }

    #[test]
    fn a_discarded_range_is_a_hole() {
        let device = device(1 << 20);
        device.write_all_at(0, &[7; 1 << 20]).unwrap();
        // Not every filesystem of the host can punch holes. If this one can, the bytes are gone.
        if device.discard(65536..131_072).unwrap() {
            let mut out = [1; 512];
            device.read_exact_at(65536, &mut out).unwrap();
            assert_eq!(out, [0; 512]);
        }
        assert!(!device.discard(0..(1 << 20) + 1).unwrap());
        assert!(!device.discard(5..5).unwrap());
        device.write_all_at(0, &[7; 4096]).unwrap();
        if device.write_zeros(100..300).unwrap() {
            let mut out = [1; 512];
            device.read_exact_at(0, &mut out).unwrap();
            assert!(
                out.iter()
                    .enumerate()
                    .all(|(n, &byte)| byte == if (100..300).contains(&n) { 0 } else { 7 })
            );
        }
    }

    #[test]
    fn a_directory_is_no_device() {
        let dir = tempfile::tempdir().unwrap();
        assert!(FileDevice::open(dir.path()).is_err());
    }
}
