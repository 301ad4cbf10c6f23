//! The spool: a temporary file with the decoded bytes of streams that cannot be decoded from the
//! middle.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::sync::Arc;

use forerun_io::{FileSource, ReadAt, Window, u64_from};
use forerun_vfs::MakeSpool;

pub type Spool = Arc<dyn ReadAt>;

/// Shortest run of zeros that becomes a hole, in bytes.
const HOLE: usize = 16 << 10;
/// Number of bytes buffered before they are written to the file.
const BUFFER: usize = 1 << 20;

pub struct SpoolWriter {
    file: BufWriter<File>,
    /// Number of bytes in the file before these.
    start: u64,
    len: u64,
}

impl SpoolWriter {
    pub fn new(make: &dyn MakeSpool) -> io::Result<Self> {
        let mut file = make.make()?;
        let start = file.seek(SeekFrom::End(0))?;
        let file = BufWriter::with_capacity(BUFFER, file);
        Ok(Self {
            file,
            start,
            len: 0,
        })
    }

    pub const fn len(&self) -> u64 {
        self.len
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Disk images are mostly holes.
        if bytes.len() >= HOLE && bytes.iter().all(|&byte| byte == 0) {
            let len = i64::try_from(bytes.len()).map_err(io::Error::other)?;
            self.file.seek(SeekFrom::Current(len))?;
        } else {
            self.file.write_all(bytes)?
        }
        self.len += u64_from(bytes.len());
        Ok(())
    }

    pub fn finish(mut self) -> io::Result<Spool> {
        self.file.flush()?;
        // The end may be a hole.
        self.file.get_ref().set_len(self.start + self.len)?;
        let file = self
            .file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        let source: Spool = Arc::new(FileSource::from_file(file)?);
        let spool = Window::new(source, self.start, Some(self.len))?;
        Ok(Arc::new(spool))
    }
}
