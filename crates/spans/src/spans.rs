//! The spans of a stream, and the map from decoded bytes to them.

use std::ops::{ControlFlow, Range};

use forerun_codec::Codec;
use forerun_io::{BlobId, u32_from};
use forerun_vfs::{DecodedLen, EncodedBlock, Padding, Place, Result};

use crate::Compression;
use crate::error::Check;
use crate::history::History;

/// The blob of the temporary file with decoded bytes.
pub const SPOOL: BlobId = BlobId(1);

/// A part of the decoded bytes that can be decoded on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Range of the decoded bytes; never empty.
    pub decoded: Range<u64>,
    pub source: SpanSource,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanSource {
    Block {
        offset: u64,
        len: u32,
        codec: Codec,
        history: Option<History>,
    },
    /// The temporary file, from this offset on.
    Spool(u64),
}

/// The spans of a stream, in order and without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spans {
    compression: Compression,
    spans: Vec<Span>,
}

impl Spans {
    pub(crate) const fn new(compression: Compression, spans: Vec<Span>) -> Self {
        Self { compression, spans }
    }

    #[must_use]
    pub const fn compression(&self) -> Compression {
        self.compression
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.spans.len()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Span> {
        self.spans.iter()
    }

    /// Returns the decoded length of the stream, in bytes.
    #[must_use]
    pub fn decoded_len(&self) -> u64 {
        self.spans.last().map_or(0, |span| span.decoded.end)
    }

    /// Visits the places of the decoded bytes in `range`, in order, each with its part of the
    /// range, until the visitor breaks or the stream ends.
    pub fn map(
        &self,
        range: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>, Place) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let first = self
            .spans
            .partition_point(|span| span.decoded.end <= range.start);
        for span in &self.spans[first..] {
            let part = span.decoded.start.max(range.start)..span.decoded.end.min(range.end);
            if part.is_empty() {
                break;
            }
            let place = span.place(part.start - span.decoded.start);
            visit(part, place)?;
        }
        ControlFlow::Continue(())
    }

    /// Returns the bytes that a block of the stream refers to, for
    /// [`History`](forerun_vfs::History).
    ///
    /// # Errors
    /// [`Error::Corrupt`](forerun_vfs::Error::Corrupt) if they cannot be decoded.
    pub fn history(&self, block: &EncodedBlock) -> Result<Vec<u8>> {
        let at = self.spans.partition_point(|span| match &span.source {
            SpanSource::Block { offset, .. } => *offset < block.offset,
            // Only streams whose blocks refer to nothing are in a temporary file.
            SpanSource::Spool(_) => false,
        });
        match self.spans.get(at).map(|span| &span.source) {
            Some(SpanSource::Block {
                offset,
                history: Some(history),
                ..
            }) if *offset == block.offset => {
                let bytes = history.bytes();
                bytes.map_err(|_| Check::History.at(self.compression, block.offset))
            }
            _ => Ok(Vec::new()),
        }
    }
}

impl Span {
    /// Returns the place of the bytes after the first `skip` bytes.
    fn place(&self, skip: u64) -> Place {
        match &self.source {
            SpanSource::Spool(offset) => Place::Stored {
                blob: SPOOL,
                offset: offset + skip,
            },
            SpanSource::Block {
                offset, len, codec, ..
            } => {
                // A block decodes to at most `Limits::block_len` bytes.
                let decoded = u32_from(self.decoded.end - self.decoded.start);
                Place::Encoded {
                    block: EncodedBlock {
                        blob: BlobId::IMAGE,
                        offset: *offset,
                        len: *len,
                        codec: *codec,
                        decoded_len: DecodedLen::Exact(decoded),
                        padding: Padding::None,
                    },
                    skip: u32_from(skip),
                }
            }
        }
    }
}
