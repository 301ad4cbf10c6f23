//! The serialised form of the spans of a stream, for [`KeepIndex`](forerun_vfs::KeepIndex).

use std::sync::Arc;

use forerun_codec::Codec;
use forerun_vfs::Limits;
use serde::{Deserialize, Serialize};

use crate::Compression;
use crate::history::History;
use crate::spans::{Span, SpanSource, Spans};

/// Serialised spans. They are not trusted: [`Self::spans`] validates them.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptSpans {
    compression: u8,
    spans: Vec<KeptSpan>,
}

/// A span, which starts at the decoded byte where the preceding span ends.
#[derive(Debug, Serialize, Deserialize)]
struct KeptSpan {
    decoded_len: u32,
    offset: u64,
    len: u32,
    /// For gzip, how many bits of the first byte belong to the preceding span. For LZ4, 1 if blocks
    /// have checksums.
    skip: u8,
    /// The bytes before the span, compressed, and their length. A length of 0 means that they are
    /// uncompressed.
    history: Vec<u8>,
    history_len: u32,
}

/// The numbers of compressions in the serialised form.
const COMPRESSIONS: [(u8, Compression); 3] = [
    (1, Compression::Gzip),
    (2, Compression::Zstd),
    (3, Compression::Lz4),
];

impl KeptSpans {
    /// Serialises spans. Returns `None` if a part of the stream is in a temporary file, which is
    /// not kept.
    #[must_use]
    pub fn of(spans: &Spans) -> Option<Self> {
        let number = COMPRESSIONS
            .iter()
            .find(|(_, of)| *of == spans.compression());
        Some(Self {
            compression: number?.0,
            spans: spans.iter().map(KeptSpan::of).collect::<Option<_>>()?,
        })
    }

    /// Validates the spans of a stream in a file of `source_len` bytes. Returns `None` if they are
    /// invalid.
    #[must_use]
    pub fn spans(self, source_len: u64, limits: &Limits) -> Option<Spans> {
        let known = COMPRESSIONS
            .iter()
            .find(|(number, _)| *number == self.compression);
        let compression = known?.1;
        let (mut decoded, mut end) = (0_u64, 0_u64);
        let mut spans = Vec::with_capacity(self.spans.len());
        for kept in self.spans {
            let stored_end = kept.offset.checked_add(u64::from(kept.len))?;
            let next = decoded.checked_add(u64::from(kept.decoded_len))?;
            // Adjacent gzip spans share a byte if they meet within it.
            let is_next = kept.offset.checked_add(1)? >= end && stored_end > end;
            let fits =
                stored_end <= source_len && kept.len.max(kept.decoded_len) <= limits.block_len;
            (is_next && fits && kept.decoded_len > 0 && kept.skip < 8).then_some(())?;
            spans.push(Span {
                decoded: decoded..next,
                source: kept.source(compression),
            });
            (decoded, end) = (next, stored_end);
        }
        Some(Spans::new(compression, spans))
    }
}

impl KeptSpan {
    fn of(span: &Span) -> Option<Self> {
        let SpanSource::Block {
            offset,
            len,
            codec,
            history,
        } = &span.source
        else {
            return None;
        };
        let (history, history_len) = match history {
            None => (Vec::new(), 0),
            Some(History::Plain(bytes)) => (bytes.to_vec(), 0),
            Some(History::Packed(bytes, len)) => (bytes.to_vec(), *len),
        };
        Some(Self {
            decoded_len: u32::try_from(span.decoded.end - span.decoded.start).ok()?,
            offset: *offset,
            len: *len,
            skip: match codec {
                Codec::DeflateSpan { skip } => *skip,
                Codec::Lz4Blocks { checksums } => u8::from(*checksums),
                _ => 0,
            },
            history,
            history_len,
        })
    }

    fn source(self, compression: Compression) -> SpanSource {
        let codec = match compression {
            Compression::Gzip | Compression::Deflate => Codec::DeflateSpan { skip: self.skip },
            Compression::Lz4 => Codec::Lz4Blocks {
                checksums: self.skip == 1,
            },
            Compression::Zstd | Compression::Xz | Compression::Bzip2 => Codec::Zstd,
        };
        let bytes: Arc<[u8]> = self.history.into();
        let history = match (bytes.is_empty(), self.history_len) {
            (true, _) => None,
            (false, 0) => Some(History::Plain(bytes)),
            (false, len) => Some(History::Packed(bytes, len)),
        };
        SpanSource::Block {
            offset: self.offset,
            len: self.len,
            codec,
            history,
        }
    }
}
