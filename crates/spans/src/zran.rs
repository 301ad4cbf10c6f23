//! Spans of a gzip file from the checkpoints of zran, an example program of zlib, as SOCI stores
//! them.
//!
//! The checkpoints start with a count (4 bytes) and the length of a span (8 bytes). Each checkpoint
//! has its offset in the file, its offset in the decoded bytes (8 bytes each), how many bits of the
//! preceding byte belong to it (1 byte), and the 32 KiB of decoded bytes before it. All numbers are
//! little-endian. The oldest form leaves out the first checkpoint, which lies after the header of
//! the file, and only the header says how long it is. A span may continue in the next members of
//! the file.

use std::sync::Arc;

use forerun_codec::Codec;
use forerun_io::{u32_from, u64_from, usize_from};
use forerun_vfs::{Bound, Error, Held, Limits, Result};

use crate::Compression;
use crate::error::Check;
use crate::history::History;
use crate::spans::{Span, SpanSource, Spans};

/// Number of bytes before the checkpoints.
const HEAD: usize = 12;
/// Length of the decoded bytes stored in each checkpoint.
const WINDOW: usize = 32 << 10;
const CHECKPOINT: usize = 8 + 8 + 1 + WINDOW;
/// Shortest header of a gzip file.
const HEADER: u64 = 10;

#[derive(Debug)]
pub struct ZranSpans {
    /// Spans that decode to nothing are left out.
    pub spans: Spans,
    /// For each span, its offset in the file and the number of the checkpoint at its start. A span
    /// whose checkpoint is left out is a block of [`Codec::GzipMembers`], which starts with the
    /// header of the file.
    pub starts: Vec<(u64, usize)>,
    pub checkpoints: usize,
}

/// A position at which decoding can start.
struct Checkpoint<'b> {
    /// Offset of the first whole byte, and how many bits of the preceding byte belong to the span.
    offset: u64,
    bits: u8,
    /// Number of decoded bytes before the checkpoint.
    decoded: u64,
    window: &'b [u8],
    /// Whether the file leaves it out, so that a header starts at its offset.
    is_left_out: bool,
}

impl<'b> Checkpoint<'b> {
    const LEFT_OUT: Self = Self {
        is_left_out: true,
        offset: 0,
        bits: 0,
        decoded: 0,
        window: &[],
    };

    fn read(bytes: &'b [u8]) -> Option<Self> {
        let (offset, rest) = bytes.split_first_chunk()?;
        let (decoded, rest) = rest.split_first_chunk()?;
        let (&bits, window) = rest.split_first()?;
        Some(Self {
            offset: u64::from_le_bytes(*offset),
            bits,
            decoded: u64::from_le_bytes(*decoded),
            window,
            is_left_out: false,
        })
    }

    /// Returns the offset of the first byte that contains bits of the span; `None` if it is
    /// negative.
    fn start(&self) -> Option<u64> {
        self.offset.checked_sub(u64::from(self.bits > 0))
    }

    const fn codec(&self) -> Codec {
        if self.is_left_out {
            Codec::GzipMembers
        } else {
            Codec::GzipSpan {
                skip: (8 - self.bits) % 8,
            }
        }
    }

    /// Returns the decoded bytes in the window. At the start of the file they fill only a part of
    /// it.
    fn history(&self) -> Option<History> {
        let len = usize_from(self.decoded).min(self.window.len());
        let (_, bytes) = self.window.split_at_checked(self.window.len() - len)?;
        (!bytes.is_empty()).then(|| History::Plain(Arc::from(bytes)))
    }
}

/// Parses the checkpoints of a gzip file of `stored_len` bytes, for its first `decoded_len` decoded
/// bytes.
///
/// # Errors
/// [`Error::Corrupt`] for checkpoints that cannot belong to such a file, [`Error::Limit`] for spans
/// that are too long to be decoded as one, and for too many of them.
pub fn zran_spans(
    bytes: &[u8],
    stored_len: u64,
    decoded_len: u64,
    limits: &Limits,
) -> Result<ZranSpans> {
    let checkpoints = checkpoints(bytes)?;
    let mut held = Held::new(limits);
    let (mut spans, mut starts) = (Vec::new(), Vec::new());
    for (number, checkpoint) in checkpoints.iter().enumerate() {
        let next = checkpoints.get(number + 1);
        // A byte shared by two spans belongs to both.
        let end = next.map_or(stored_len, |next| next.offset);
        let decoded_end = next.map_or(decoded_len, |next| next.decoded);
        let Some(start) = checkpoint.start() else {
            return Err(wrong(number, checkpoint));
        };
        let decoded = checkpoint.decoded;
        let is_first = number > 0 || decoded == 0;
        let is_behind = checkpoint.offset > 0 || checkpoint.is_left_out;
        let is_place = is_behind && checkpoint.bits < 8 && end <= stored_len;
        let least = if checkpoint.is_left_out {
            HEADER
        } else {
            checkpoint.offset
        };
        if !is_first || !is_place || end <= start || end <= least && next.is_some() {
            return Err(wrong(number, checkpoint));
        }
        if next.is_some_and(|next| next.decoded < decoded) {
            return Err(wrong(number + 1, checkpoint));
        }
        let decoded_end = decoded_end.min(decoded_len);
        if decoded_end <= decoded {
            continue;
        }
        let (len, decoded_span) = (end - start, decoded_end - decoded);
        let most = u64::from(limits.block_len);
        if len.max(decoded_span) > most {
            let what = format!("span of the checkpoint at {start:#x}, in bytes,");
            return Err(Error::limit(Bound::Other, what, most));
        }
        let history = checkpoint.history();
        let window = history.as_ref().map_or(0, History::held);
        held.add(size_of::<Span>() + window)?;
        starts.push((start, number));
        spans.push(Span {
            decoded: decoded..decoded_end,
            source: SpanSource::Block {
                offset: start,
                len: u32_from(len),
                codec: checkpoint.codec(),
                history,
            },
        });
    }
    let covered = spans.last().map_or(0, |span| span.decoded.end);
    if covered != decoded_len {
        let (found, expected) = (covered, decoded_len);
        return Err(Check::Covered { found, expected }.at(Compression::Gzip, 0));
    }
    Ok(ZranSpans {
        spans: Spans::new(Compression::Gzip, spans),
        starts,
        checkpoints: checkpoints.len(),
    })
}

fn wrong(number: usize, checkpoint: &Checkpoint<'_>) -> Error {
    let check = Check::Checkpoint {
        number,
        decoded: checkpoint.decoded,
    };
    check.at(Compression::Gzip, checkpoint.offset)
}

fn checkpoints(bytes: &[u8]) -> Result<Vec<Checkpoint<'_>>> {
    let len = u64_from(bytes.len());
    let fail = || Check::Checkpoints { len }.at(Compression::Gzip, 0);
    let (head, rest) = bytes.split_at_checked(HEAD).ok_or_else(fail)?;
    let count = head
        .first_chunk()
        .map_or(0, |count| u32::from_le_bytes(*count));
    let count = usize::try_from(count).map_err(|_| fail())?;
    let (stored, cut) = rest.as_chunks::<CHECKPOINT>();
    let missing = count.checked_sub(stored.len()).ok_or_else(fail)?;
    if count == 0 || missing > 1 || !cut.is_empty() {
        return Err(fail());
    }
    let first = (missing == 1).then_some(Checkpoint::LEFT_OUT);
    let others = stored.iter().filter_map(|bytes| Checkpoint::read(bytes));
    Ok(first.into_iter().chain(others).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: u64 = 100_000;

    /// Offset, bits, and decoded bytes before the checkpoint.
    type Stored = (u64, u8, u64);

    fn stored(count: u32, checkpoints: &[Stored]) -> Vec<u8> {
        let mut bytes = [&count.to_le_bytes()[..], &[0; 8]].concat();
        for (number, (offset, bits, decoded)) in (1..).zip(checkpoints) {
            bytes.extend(offset.to_le_bytes());
            bytes.extend(decoded.to_le_bytes());
            bytes.push(*bits);
            bytes.extend([number; WINDOW]);
        }
        bytes
    }

    fn of(bytes: &[u8]) -> Result<ZranSpans> {
        zran_spans(bytes, STORED, 300_000, &Limits::default())
    }

    #[test]
    fn spans_lie_between_checkpoints() {
        let found = of(&stored(
            3,
            &[(18, 0, 0), (18_000, 0, 1000), (50_000, 3, 200_000)],
        ))
        .unwrap();
        assert_eq!(found.starts, [(18, 0), (18_000, 1), (49_999, 2)]);
        let spans: Vec<_> = found.spans.iter().collect();
        let history = |at: usize| match &spans[at].source {
            SpanSource::Block { history, .. } => history.as_ref().map_or(0, History::held),
            SpanSource::Spool(_) => 0,
        };
        assert_eq!([0, 1, 2].map(history), [0, 1000, WINDOW]);
        assert!(matches!(
            spans[1].source,
            SpanSource::Block {
                offset: 18_000,
                len: 32_000,
                codec: Codec::GzipSpan { skip: 0 },
                ..
            }
        ));
        assert!(matches!(
            spans[2].source,
            SpanSource::Block {
                len: 50_001,
                codec: Codec::GzipSpan { skip: 5 },
                ..
            }
        ));
        assert_eq!(spans[2].decoded, 200_000..300_000);
        // The oldest form, with spans that decode to nothing, and with checkpoints after the
        // archive.
        let found = of(&stored(
            4,
            &[(20, 0, 0), (50_000, 3, 200_000), (60_000, 0, 400_000)],
        ))
        .unwrap();
        assert_eq!(found.starts, [(20, 1), (49_999, 2)]);
        assert_eq!((found.checkpoints, found.spans.count()), (4, 2));
        let found = of(&stored(2, &[(50_000, 3, 200_000)])).unwrap();
        assert_eq!(found.starts, [(0, 0), (49_999, 1)]);
        let first = found.spans.iter().next().map(|span| &span.source);
        assert!(matches!(
            first,
            Some(SpanSource::Block {
                offset: 0,
                len: 50_000,
                codec: Codec::GzipMembers,
                history: None,
            })
        ));
    }

    #[test]
    fn checkpoints_that_cannot_be_are_refused() {
        let good = stored(2, &[(10, 0, 0), (50_000, 3, 200_000)]);
        assert!(of(&good).is_ok());
        for len in 0..good.len() {
            assert!(of(&good[..len]).is_err(), "cut to {len} bytes");
        }
        let checks: &[(&str, u32, &[Stored])] = &[
            ("none", 0, &[]),
            ("too few", 4, &[(10, 0, 0), (50_000, 3, 200_000)]),
            ("too many", 1, &[(10, 0, 0), (50_000, 3, 200_000)]),
            ("a count without checkpoints", u32::MAX, &[]),
            ("a start within the decoded bytes", 1, &[(10, 0, 1)]),
            ("an offset behind the file", 1, &[(STORED, 0, 0)]),
            (
                "a later one behind the file",
                2,
                &[(10, 0, 0), (STORED + 1, 0, 5)],
            ),
            ("no byte before", 1, &[(0, 3, 0)]),
            ("nine bits", 1, &[(10, 9, 0)]),
            ("eight bits", 1, &[(10, 8, 0)]),
            ("offsets that go back", 2, &[(10, 0, 0), (9, 0, 5)]),
            ("one offset twice", 2, &[(10, 0, 0), (10, 0, 5)]),
            (
                "decoded bytes that go back",
                3,
                &[(10, 0, 0), (20, 0, 5), (30, 0, 4)],
            ),
            (
                "an end before the file's",
                2,
                &[(10, 0, 0), (u64::MAX, 7, u64::MAX)],
            ),
        ];
        for (what, count, checkpoints) in checks {
            let found = of(&stored(*count, checkpoints));
            assert!(matches!(found, Err(Error::Corrupt(_))), "{what}: {found:?}");
        }
        let long = zran_spans(&good, STORED, 1 << 40, &Limits::default());
        assert!(matches!(long, Err(Error::Limit { .. })), "{long:?}");
        let mut limits = Limits::default();
        limits.walk_bytes = 1000;
        let much = zran_spans(&good, STORED, 300_000, &limits);
        assert!(matches!(much, Err(Error::Limit { .. })), "{much:?}");
        let none = zran_spans(&good, STORED, 0, &Limits::default()).unwrap();
        assert_eq!(none.spans.count(), 0);
    }
}
