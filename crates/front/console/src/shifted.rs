//! A file with other bytes before the image, as with mksquashfs -offset or the runtime of an
//! AppImage.

use std::fs::File;
use std::io::{self, Write};

use forerun::build::ImageOutput;

pub struct Shifted<'f> {
    file: &'f mut File,
    offset: u64,
}

impl<'f> Shifted<'f> {
    /// Creates the output. The file's position must be at the offset.
    pub const fn new(file: &'f mut File, offset: u64) -> Self {
        Self { file, offset }
    }
}

impl Write for Shifted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl ImageOutput for Shifted<'_> {
    fn patch(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let at = self.offset.checked_add(offset);
        let at = at.ok_or(io::ErrorKind::FileTooLarge)?;
        self.file.patch(at, bytes)
    }

    fn zeros(&mut self, len: u64) -> io::Result<()> {
        self.file.zeros(len)
    }
}
