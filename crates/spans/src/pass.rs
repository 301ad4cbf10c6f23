//! The first pass over a stream.

use std::ops::Range;
use std::sync::Arc;

use forerun_codec::StreamFormat;
use forerun_io::{MemorySource, ReadAt};
use forerun_vfs::{Error, Result};

use crate::cutter::{Cutter, Sink};
use crate::failed::Failed;
use crate::input::Input;
use crate::options::IndexOptions;
use crate::spans::Spans;
use crate::spool::Spool;
use crate::{Compression, gzip, lz4, streams};

pub struct Indexed {
    pub spans: Spans,
    /// The decoded bytes in the temporary file, the blob [`SPOOL`](crate::SPOOL), if any.
    pub spool: Option<Spool>,
    /// Offset of bytes after the stream that do not belong to it.
    pub trailing: Option<u64>,
    /// The damage at which a rescue ended the stream.
    pub damage: Option<Error>,
}

impl std::fmt::Debug for Indexed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Indexed")
            .field("spans", &self.spans)
            .field("trailing", &self.trailing)
            .field("damage", &self.damage)
            .finish_non_exhaustive()
    }
}

/// Reads all of `source` once, in order, and passes the decoded bytes to `sink`.
///
/// # Errors
/// [`Error::Corrupt`] with the offset of a damaged stream, [`Error::Limit`] if it decodes to too
/// many bytes or has blocks that are too long, [`Error::Unsupported`] if a temporary file is needed
/// but not allowed, [`Error::Io`]; and the errors of `sink`, even in a rescue.
pub fn index<'a>(
    source: &'a dyn ReadAt,
    compression: Compression,
    options: &'a IndexOptions,
    sink: &'a mut Sink<'a>,
) -> Result<Indexed> {
    index_part(source, 0..source.len(), compression, options, sink)
}

/// Decodes all of `source` into a temporary file, and returns that file as a source.
///
/// # Errors
/// The errors of [`index`].
pub fn decode(
    source: &dyn ReadAt,
    compression: Compression,
    mut options: IndexOptions,
) -> Result<Spool> {
    options.spool_all = true;
    let indexed = index(source, compression, &options, &mut |_| Ok(()))?;
    let empty = || -> Spool { Arc::new(MemorySource::new(Vec::new())) };
    Ok(indexed.spool.unwrap_or_else(empty))
}

/// Reads a part of `source` as [`index`] reads all of it, for a stream among other bytes. The spans
/// have offsets in `source`.
///
/// # Errors
/// The errors of [`index`].
pub fn index_part<'a>(
    source: &'a dyn ReadAt,
    part: Range<u64>,
    compression: Compression,
    options: &'a IndexOptions,
    sink: &'a mut Sink<'a>,
) -> Result<Indexed> {
    let start = part.start;
    let mut input = Input::new(source, part, options.chunk.max(1));
    let mut cutter = Cutter::new(compression, start, options, sink);
    let read = match compression {
        Compression::Gzip => gzip::read(&mut input, &mut cutter, options.span_len),
        Compression::Deflate => gzip::read_bare(&mut input, &mut cutter, options.span_len),
        Compression::Lz4 => lz4::read(&mut input, &mut cutter, options.span_len),
        Compression::Zstd => streams::read(&mut input, &mut cutter, StreamFormat::Zstd),
        Compression::Xz => streams::read(&mut input, &mut cutter, StreamFormat::Xz),
        Compression::Bzip2 => streams::read(&mut input, &mut cutter, StreamFormat::Bzip2),
    };
    let (trailing, damage) = match read {
        Ok(trailing) => (trailing, None),
        Err(Failed::Stream(damage)) if options.rescue => (None, Some(damage)),
        Err(Failed::Stream(error) | Failed::Other(error)) => return Err(error),
    };
    let (spans, spool) = cutter.finish()?;
    Ok(Indexed {
        spans: Spans::new(compression, spans),
        spool,
        trailing,
        damage,
    })
}
