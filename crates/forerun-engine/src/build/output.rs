//! Where an image goes.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// An output that is written from its first byte on, and whose bytes can be replaced once they are
/// written: some formats know their superblock only at the end.
pub trait ImageOutput: Write {
    /// Replaces bytes that were written before. What is written next still goes to the end.
    ///
    /// # Errors
    /// Those of the output. Bytes that were never written may give any error.
    fn patch(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
}

impl ImageOutput for Vec<u8> {
    fn patch(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let start = forerun_io::saturating_usize(offset);
        let end = start.saturating_add(bytes.len());
        match self.get_mut(start..end) {
            Some(there) => {
                there.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// The image starts at the file's first byte, whatever the position is.
impl ImageOutput for File {
    fn patch(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }
}

impl<T: ImageOutput + ?Sized> ImageOutput for &mut T {
    fn patch(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        (**self).patch(offset, bytes)
    }
}
