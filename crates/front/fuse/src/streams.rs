//! Chooses chunks to store in the page cache ahead of a sequential reader.
//!
//! The kernel sends no requests for stored pages: a reader passes through them unnoticed and next
//! requests the first missing page. So the last page of each chunk is left out; the request for it
//! shows how far the reader has come.

use std::ops::Range;

use forerun_io::{SequentialStreams, WindowRules};

use crate::tuning::{KERNEL_WINDOW, PIECE, STORE_PROOF, STORED_FILES};

/// Bytes left out at the end of a chunk: one page.
pub const GAP: usize = 4096;

#[derive(Debug)]
pub struct Streams {
    rules: WindowRules,
    files: SequentialStreams<u64>,
}

impl Streams {
    /// Creates an empty set. At most `max_window` bytes are stored ahead of a reader.
    pub const fn new(max_window: u64) -> Self {
        Self {
            rules: WindowRules {
                // A reader becomes visible only at the end of a chunk; the next chunk must be
                // stored by then.
                first: 2 * PIECE,
                max: max_window,
                // The kernel has a few requests in flight, in any order.
                slack: PIECE,
                proof: STORE_PROOF,
                lead: KERNEL_WINDOW,
                // Chunks end at block boundaries.
                align: PIECE,
                trusted: STORE_PROOF,
            },
            files: SequentialStreams::new(STORED_FILES),
        }
    }

    /// Records a read of `range` in `file`. Returns the chunks to store now, each with the page to
    /// leave out.
    pub fn on_read(&mut self, file: u64, range: &Range<u64>) -> Vec<Range<u64>> {
        let step = self.files.on_read(file, range, u64::MAX, &self.rules);
        let window = step.ahead.unwrap_or_default();
        let mut start = window.start;
        let pieces = std::iter::from_fn(|| {
            let piece = start..(start / PIECE + 1) * PIECE;
            start = piece.end;
            (piece.end <= window.end).then_some(piece)
        });
        pieces.collect()
    }

    /// Returns the part of a chunk that its reader has not reached; `None` if the reader went
    /// elsewhere.
    pub fn still_ahead(&self, file: u64, piece: &Range<u64>) -> Option<Range<u64>> {
        self.files.last_of(file)?.still_ahead(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const REQUEST: u64 = 128 << 10;

    #[test]
    fn nothing_is_stored_before_a_reader_has_proven_itself() {
        let mut streams = Streams::new(4 * MIB);
        for n in 0..3 {
            let at = n * REQUEST;
            assert!(streams.on_read(7, &(at..at + REQUEST)).is_empty());
        }
        assert!(!streams.on_read(7, &(3 * REQUEST..4 * REQUEST)).is_empty());
    }

    #[test]
    fn pieces_follow_a_reader_that_shows_up_at_their_gaps() {
        let mut streams = Streams::new(4 * MIB);
        let (mut pieces, mut at) = (Vec::new(), 0);
        while pieces.is_empty() {
            pieces = streams.on_read(7, &(at..at + REQUEST));
            at += REQUEST;
        }
        assert_eq!(pieces[0].start, at + KERNEL_WINDOW);
        let mut end = pieces[0].end;
        for _ in 0..100 {
            pieces.extend(streams.on_read(7, &(end - 4096..end)));
            end += PIECE;
            let stored = pieces.last().unwrap().end;
            let ahead = stored - end + PIECE;
            assert!((PIECE..=8 * MIB).contains(&ahead), "{ahead} ahead at {end}");
        }
        for pair in pieces.windows(2) {
            assert_eq!(pair[0].end, pair[1].start);
            assert_eq!(pair[1].end - pair[1].start, PIECE);
            assert_eq!(pair[0].end % PIECE, 0);
        }
    }

    #[test]
    fn a_piece_that_its_reader_has_passed_is_not_stored() {
        let mut streams = Streams::new(4 * MIB);
        let mut pieces = Vec::new();
        for n in 0..16 {
            pieces.extend(streams.on_read(7, &(n * REQUEST..(n + 1) * REQUEST)));
        }
        assert!(pieces.len() > 1);
        let (first, last) = (&pieces[0], pieces.last().unwrap());
        assert_ne!(streams.still_ahead(7, first), Some(first.clone()));
        assert_eq!(streams.still_ahead(7, last), Some(last.clone()));
        assert_eq!(streams.still_ahead(8, last), None, "another file");
        streams.on_read(7, &(900 * MIB..901 * MIB));
        assert_eq!(streams.still_ahead(7, last), None);
    }
}
