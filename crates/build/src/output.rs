//! The output of an image, and a writer that counts, buffers, and reports the offset of a failed
//! write.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use forerun_io::{CountedWrite, Observer, u64_from, usize_from};

use super::tree::BuildError;

/// Bytes per write.
const CHUNK: usize = 1 << 20;
/// Shortest run of zeros that becomes a hole.
const HOLE: u64 = 1 << 14;

/// An output that is written sequentially, and whose written bytes can be replaced: some formats
/// know their superblock only at the end.
pub trait ImageOutput: Write {
    /// Replaces bytes that were written before. The next write still appends. May fail if the bytes
    /// were never written.
    fn patch(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes `len` zeros, as a hole if the output supports it.
    fn zeros(&mut self, len: u64) -> io::Result<()> {
        write_zeros(self, len)
    }
}

fn write_zeros(out: &mut (impl Write + ?Sized), mut len: u64) -> io::Result<()> {
    let zeros = [0; 1 << 16];
    while len > 0 {
        let part = zeros.get(..usize_from(len)).unwrap_or(&zeros);
        out.write_all(part)?;
        len -= u64_from(part.len());
    }
    Ok(())
}

impl ImageOutput for Vec<u8> {
    fn patch(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let start = usize_from(offset);
        match self.get_mut(start..start + bytes.len()) {
            Some(there) => {
                there.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// The image starts at the first byte of the file, whatever its position is.
impl ImageOutput for File {
    fn patch(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    /// Makes a hole at the end of a regular file, and writes zeros otherwise.
    fn zeros(&mut self, len: u64) -> io::Result<()> {
        let metadata = self.metadata()?;
        if metadata.is_file() && self.stream_position()? == metadata.len() {
            self.set_len(metadata.len() + len)?;
            self.seek(SeekFrom::End(0))?;
            return Ok(());
        }
        write_zeros(self, len)
    }
}

impl<T: ImageOutput + ?Sized> ImageOutput for &mut T {
    fn patch(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        (**self).patch(offset, bytes)
    }

    fn zeros(&mut self, len: u64) -> io::Result<()> {
        (**self).zeros(len)
    }
}

pub struct ImageWriter<'o> {
    out: BufWriter<CountedWrite<&'o mut dyn ImageOutput>>,
    position: u64,
    observer: Arc<Observer>,
}

/// An image whose bytes are all written.
pub struct Complete<'o> {
    out: &'o mut dyn ImageOutput,
    len: u64,
    observer: Arc<Observer>,
}

impl<'o> ImageWriter<'o> {
    /// Returns a writer to `out` that counts in `observer`.
    pub fn new(out: &'o mut dyn ImageOutput, observer: &Arc<Observer>) -> Self {
        let counted = CountedWrite::new(out, Arc::clone(observer));
        Self {
            out: BufWriter::with_capacity(CHUNK, counted),
            position: 0,
            observer: Arc::clone(observer),
        }
    }

    /// Returns the offset of the next byte.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), BuildError> {
        let offset = self.position;
        self.out
            .write_all(bytes)
            .map_err(|source| BuildError::Output { offset, source })?;
        self.position += u64_from(bytes.len());
        Ok(())
    }

    pub fn zeros_to(&mut self, end: u64) -> Result<(), BuildError> {
        let zeros = [0; 4096];
        while self.position < end {
            let len = usize_from(end - self.position).min(zeros.len());
            self.write(&zeros[..len])?;
        }
        Ok(())
    }

    /// Writes zeros up to `end`, as a hole if the output supports it.
    pub fn hole_to(&mut self, end: u64) -> Result<(), BuildError> {
        let len = end - self.position;
        if len < HOLE {
            return self.zeros_to(end);
        }
        let offset = self.position;
        let mut skip = || {
            self.out.flush()?;
            let counted = self.out.get_mut();
            counted.get_mut().zeros(len)?;
            counted.advance(len);
            Ok(())
        };
        skip().map_err(|source| BuildError::Output { offset, source })?;
        self.position = end;
        Ok(())
    }

    /// Writes the buffered bytes. After that, bytes can only be replaced.
    pub fn finish(self) -> Result<Complete<'o>, BuildError> {
        let position = self.position;
        let counted = self.out.into_inner().map_err(|error| BuildError::Output {
            offset: position,
            source: error.into_error(),
        })?;
        Ok(Complete {
            out: counted.into_inner(),
            len: position,
            observer: self.observer,
        })
    }
}

impl Complete<'_> {
    /// Flushes the output, and returns the length of the image.
    pub fn end(self) -> Result<u64, BuildError> {
        let offset = self.len;
        let flushed = self.out.flush();
        flushed.map_err(|source| BuildError::Output { offset, source })?;
        self.observer.flush();
        Ok(self.len)
    }

    pub fn patch(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BuildError> {
        let patched = self.out.patch(offset, bytes);
        patched.map_err(|source| BuildError::Output { offset, source })?;
        self.observer.write(offset, u64_from(bytes.len()));
        Ok(())
    }
}
