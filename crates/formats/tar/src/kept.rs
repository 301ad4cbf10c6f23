//! Stores the index of an archive between openings.
//!
//! The stored index has the spans of a compressed stream, and the bytes that the parser consumed:
//! headers and their extensions. The next opening feeds these bytes to the parser again, so that a
//! stored index passes the same checks as an archive.

use forerun_codec::{Codec, Encoder, Encoding};
use forerun_io::{u64_from, usize_from};
use forerun_spans::{KeptSpans, Spans};
use forerun_vfs::{KeepIndex, Limits, Result};
use serde::{Deserialize, Serialize};

use crate::error::Check;
use crate::index::{Index, Pass, Progress};

/// Version of the stored form. An index of another version is ignored.
const VERSION: u16 = 2;
/// Zstandard level for the headers.
const LEVEL: u8 = 3;

#[derive(Debug, Serialize, Deserialize)]
struct KeptIndex<'b> {
    version: u16,
    stored_len: u64,
    /// `None` for an uncompressed archive.
    spans: Option<KeptSpans>,
    /// Offset of bytes after the stream.
    trailing: Option<u64>,
    /// Length of the bytes that the parser consumed, and these bytes compressed.
    fed_len: u64,
    fed: &'b [u8],
}

/// Records the bytes that the parser consumes, up to a limit.
pub struct Recorder {
    fed: Option<Vec<u8>>,
    most: usize,
}

impl Recorder {
    /// Returns a recorder, which records nothing unless `is_wanted`.
    pub fn new(is_wanted: bool, limits: &Limits) -> Self {
        Self {
            fed: is_wanted.then(Vec::new),
            most: most(limits),
        }
    }

    pub fn record(&mut self, bytes: &[u8]) {
        if let Some(fed) = &mut self.fed {
            match fed.len() + bytes.len() <= self.most {
                true => fed.extend_from_slice(bytes),
                // Such an index is too large to store.
                false => self.fed = None,
            }
        }
    }

    /// Stores an index from the recorded bytes, unless they exceeded the limit.
    pub fn keep(
        self,
        keep: &dyn KeepIndex,
        spans: Option<&Spans>,
        stored_len: u64,
        trailing: Option<u64>,
    ) {
        let kept = self
            .fed
            .and_then(|fed| pack(&fed, spans, stored_len, trailing));
        if let Some(kept) = kept {
            keep.store(&kept);
        }
    }
}

/// Returns the limit for recorded bytes, which are in memory together with the tree.
fn most(limits: &Limits) -> usize {
    usize_from(limits.walk_bytes / 2)
}

fn pack(
    fed: &[u8],
    spans: Option<&Spans>,
    stored_len: u64,
    trailing: Option<u64>,
) -> Option<Vec<u8>> {
    let len = u32::try_from(u64_from(fed.len())).ok()?;
    let mut encoder = Encoder::new(&Encoding::Zstd { level: LEVEL }, len).ok()?;
    let mut packed = Vec::new();
    // Headers are mostly zeros, so they compress well.
    encoder.encode(fed, &mut packed).then_some(())?;
    let spans = match spans {
        Some(spans) => Some(KeptSpans::of(spans)?),
        None => None,
    };
    let kept = KeptIndex {
        version: VERSION,
        stored_len,
        spans,
        trailing,
        fed_len: u64::from(len),
        fed: &packed,
    };
    postcard::to_allocvec(&kept).ok()
}

/// Loads the index that was stored for a file of `stored_len` bytes. Returns `None` if there is
/// none, or an invalid one. The spans are those of a compressed archive.
pub fn load(
    keep: &dyn KeepIndex,
    stored_len: u64,
    limits: &Limits,
    is_layer: bool,
) -> Option<(Index, Option<Spans>)> {
    let bytes = keep.load(limits.walk_bytes)?;
    let kept: KeptIndex<'_> = postcard::from_bytes(&bytes).ok()?;
    let is_right = kept.version == VERSION && kept.stored_len == stored_len;
    let fits = kept.fed_len <= u64_from(most(limits));
    (is_right && fits).then_some(())?;
    let spans = match kept.spans {
        Some(spans) => Some(spans.spans(stored_len, limits)?),
        None => None,
    };
    let len = spans.as_ref().map_or(stored_len, Spans::decoded_len);
    let mut fed = vec![0; usize_from(kept.fed_len)];
    Codec::Zstd.decode(kept.fed, &mut fed).ok()?;
    let pass = Pass::new(limits, is_layer);
    let index = replay(pass, &fed, len, kept.trailing).ok()?;
    Some((index?, spans))
}

/// Feeds the recorded bytes to the parser. Returns `None` if the parser asks for other bytes.
fn replay(
    mut pass: Pass,
    mut fed: &[u8],
    len: u64,
    trailing: Option<u64>,
) -> Result<Option<Index>> {
    loop {
        if fed.is_empty() {
            pass.end_of_source(len)?;
            break;
        }
        let (_, wanted) = pass.wants();
        let Some((bytes, rest)) = fed.split_at_checked(wanted) else {
            return Ok(None);
        };
        fed = rest;
        match pass.take(bytes, len)? {
            Progress::Open { .. } => {}
            Progress::Ended if fed.is_empty() => break,
            Progress::Ended => return Ok(None),
        }
    }
    if let Some(offset) = trailing {
        pass.warn(offset, Check::Trailing);
    }
    Ok(Some(pass.finish(None)))
}
