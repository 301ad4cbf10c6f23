//! The spool: the decoded bytes of streams that cannot be decoded from within.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use forerun_io::{FileSource, ReadAt, u64_from};
use forerun_vfs::MakeSpool;

/// The spooled bytes, for reads.
pub type Spool = Arc<dyn ReadAt>;

/// Bytes that are written before they reach the file.
const BUFFER: usize = 1 << 20;

/// A spool while it is written.
pub struct SpoolWriter {
    file: BufWriter<File>,
    len: u64,
}

impl SpoolWriter {
    pub fn new(make: &dyn MakeSpool) -> io::Result<Self> {
        let file = BufWriter::with_capacity(BUFFER, make.make()?);
        Ok(Self { file, len: 0 })
    }

    /// Returns how many bytes were written.
    pub const fn len(&self) -> u64 {
        self.len
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.len = self.len.saturating_add(u64_from(bytes.len()));
        Ok(())
    }

    pub fn finish(self) -> io::Result<Spool> {
        let file = self
            .file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        Ok(Arc::new(FileSource::from_file(file)?))
    }
}
