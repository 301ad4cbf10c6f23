//! Decodes the first bytes of a stream, for searches, which find many streams and open few.

use std::io;

use forerun_io::ReadAt;
use forerun_vfs::{Error, Limits, Result};

use crate::Compression;
use crate::lz4;
use crate::options::IndexOptions;
use crate::pass::index;

/// Most stored bytes to read, enough for a block of bzip2, which is decoded as a whole.
const STORED_MAX: u64 = 1 << 20;
/// Length of one read.
const CHUNK: usize = 16 << 10;

/// Decodes the first `len` bytes of the stream at the start of `source`, or all of a shorter
/// stream.
///
/// # Errors
/// The errors of [`index`], if the stream is damaged before the end of these bytes.
pub fn head(source: &dyn ReadAt, compression: Compression, len: usize) -> Result<Vec<u8>> {
    if compression == Compression::Lz4 {
        return lz4::head(source, len);
    }
    let options = IndexOptions {
        limits: Limits::default(),
        rescue: false,
        spool: None,
        chunk: CHUNK,
        ..IndexOptions::default()
    };
    let mut out = Vec::new();
    let mut sink = |bytes: &[u8]| {
        let wanted = (len - out.len()).min(bytes.len());
        out.extend_from_slice(&bytes[..wanted]);
        match out.len() < len {
            true => Ok(()),
            // Any error ends the pass.
            false => Err(Error::NoSpace),
        }
    };
    match index(&Start(source), compression, &options, &mut sink) {
        Err(error) if out.len() < len => Err(error),
        _ => Ok(out),
    }
}

/// The start of a source, as a source.
struct Start<'s>(&'s dyn ReadAt);

impl ReadAt for Start<'_> {
    fn len(&self) -> u64 {
        self.0.len().min(STORED_MAX)
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(offset, out)
    }
}
