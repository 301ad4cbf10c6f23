//! Collects the spans of a stream during a pass, within the limits.

use std::ops::Range;

use forerun_codec::Codec;
use forerun_io::{u32_from, u64_from};
use forerun_vfs::{Bound, Error, Held, MakeSpool, Result};

use crate::Compression;
use crate::history::History;
use crate::options::IndexOptions;
use crate::spans::{Span, SpanSource};
use crate::spool::{Spool, SpoolWriter};

/// Bytes that each byte of a stream may decode to, in addition to `Limits::stream_bytes`. Text has
/// a ratio of 5 or 10. Only bytes that were read count, otherwise a long bomb would be allowed more
/// than a short one.
const EXPANSION: u64 = 50;

/// Receives the decoded bytes, in order.
pub type Sink<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

pub struct Cutter<'a> {
    pub compression: Compression,
    pub block_len: u64,
    spans: Vec<Span>,
    held: Held,
    /// Number of decoded bytes so far, and the limit before any bytes are read.
    decoded: u64,
    allowed: u64,
    /// Offset of the stream in its source.
    start: u64,
    sink: &'a mut Sink<'a>,
    make_spool: Option<&'a dyn MakeSpool>,
    spool: Option<SpoolWriter>,
    spool_all: bool,
}

impl<'a> Cutter<'a> {
    pub fn new(
        compression: Compression,
        start: u64,
        options: &'a IndexOptions,
        sink: &'a mut Sink<'a>,
    ) -> Self {
        let limits = &options.limits;
        Self {
            compression,
            block_len: u64::from(limits.block_len),
            spans: Vec::new(),
            held: Held::new(limits),
            decoded: 0,
            allowed: limits.stream_bytes,
            start,
            sink,
            make_spool: options.spool.as_deref(),
            spool: None,
            spool_all: options.spool_all,
        }
    }

    pub const fn decoded(&self) -> u64 {
        self.decoded
    }

    /// Counts decoded bytes, which end at `position` of the source, and passes them to the sink.
    /// Fails with `Limit` if there are too many.
    pub fn take(&mut self, bytes: &[u8], position: u64) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.decoded += u64_from(bytes.len());
        let of_read = (position - self.start) * EXPANSION;
        if self.decoded > self.allowed.saturating_add(of_read) {
            let what = "what the compressed file decodes to, in bytes,";
            return Err(Error::limit(Bound::StreamBytes, what, self.allowed));
        }
        if self.spool_all {
            self.write(bytes, 0)?;
        }
        (self.sink)(bytes)
    }

    /// Adds a span that is a block. Fails with `Limit` if the block is too long, or if there is no
    /// more memory for spans.
    pub fn block(
        &mut self,
        decoded: Range<u64>,
        stored: Range<u64>,
        codec: Codec,
        history: Option<History>,
    ) -> Result<()> {
        if decoded.is_empty() || self.spool_all {
            return Ok(());
        }
        let offset = stored.start;
        let len = stored.end - offset;
        self.check_len(offset, len.max(decoded.end - decoded.start))?;
        let len = u32_from(len);
        let held = history.as_ref().map_or(0, History::held);
        self.held.add(size_of::<Span>() + held)?;
        let source = SpanSource::Block {
            offset,
            len,
            codec,
            history,
        };
        self.spans.push(Span { decoded, source });
        Ok(())
    }

    /// Fails with `Limit` if a block at `offset` has become too long to be decoded as one.
    pub fn check_len(&self, offset: u64, len: u64) -> Result<()> {
        if len <= self.block_len || self.spool_all {
            return Ok(());
        }
        let name = self.compression.name();
        let what = format!("block of {name} at offset {offset:#x}, in bytes,");
        Err(Error::limit(Bound::Other, what, self.block_len))
    }

    /// Writes decoded bytes to the temporary file. Fails with `Unsupported`, at this offset of the
    /// stream, if no such file is allowed, and with `Spool` if it cannot be written.
    pub fn spool(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        if bytes.is_empty() || self.spool_all {
            return Ok(());
        }
        self.write(bytes, offset)
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        if self.spool.is_none() {
            let Some(make) = self.make_spool else {
                let name = self.compression.name();
                let what = format!(
                    "{name} in one piece (at {offset:#x}), without a place for temporary files"
                );
                return Err(Error::Unsupported(what));
            };
            self.spool = Some(SpoolWriter::new(make).map_err(Error::spool)?);
        }
        match &mut self.spool {
            Some(spool) => spool.write(bytes).map_err(Error::spool),
            None => Ok(()),
        }
    }

    /// Adds a span for the last bytes of the temporary file, which decode to `decoded`. Fails with
    /// `Limit` if there is no more memory for spans.
    pub fn spooled(&mut self, decoded: Range<u64>) -> Result<()> {
        if decoded.is_empty() || self.spool_all {
            return Ok(());
        }
        let len = decoded.end - decoded.start;
        let end = self.spool.as_ref().map_or(0, SpoolWriter::len);
        if let Some(last) = self.spans.last_mut()
            && matches!(last.source, SpanSource::Spool(_))
        {
            last.decoded.end = decoded.end;
            return Ok(());
        }
        self.held.add(size_of::<Span>())?;
        let source = SpanSource::Spool(end - len);
        self.spans.push(Span { decoded, source });
        Ok(())
    }

    /// Returns the spans, and the temporary file if there is one.
    pub fn finish(self) -> Result<(Vec<Span>, Option<Spool>)> {
        let spool = self.spool.map(SpoolWriter::finish).transpose();
        Ok((self.spans, spool.map_err(Error::spool)?))
    }
}
