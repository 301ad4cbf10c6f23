//! Where each sequential reader is, and what it will want next: decides what is pushed.
//!
//! The kernel's own readahead sees nothing of pages that somebody else put into the cache: a reader
//! walks through them without a word to us, and the first page that is missing is the next request.
//! So what is pushed comes in pieces with one page left out between them: the request for that page
//! says how far the reader has come, and by then the next piece is there.

use std::collections::VecDeque;
use std::ops::Range;

/// What is left out at the end of a piece: a page.
pub const GAP: usize = 4096;
/// Largest piece, with the gap at its end.
const PIECE: u64 = 1 << 20;
/// Bytes that must have been read one after the other before anything is pushed.
const PROVEN: u64 = 512 << 10;
/// What the kernel's own readahead has under way when a reader is first noticed.
const KERNEL_WINDOW: u64 = 128 << 10;
/// Files remembered, the least recently read forgotten first.
const FILES: usize = 32;

/// The readers of one mount.
#[derive(Debug)]
pub struct Streams {
    max_window: u64,
    files: VecDeque<Stream>,
}

#[derive(Debug)]
struct Stream {
    file: u64,
    /// Read one after the other so far.
    run: u64,
    /// End of the furthest read.
    next: u64,
    /// Everything before this was pushed, or passed by the reader.
    pushed: u64,
}

impl Streams {
    /// Pushes at most `max_window` bytes ahead of a reader.
    pub const fn new(max_window: u64) -> Self {
        Self {
            max_window,
            files: VecDeque::new(),
        }
    }

    /// Notes that `range` of `file` was read; gives the pieces to push now, each with its gap.
    pub fn on_read(&mut self, file: u64, range: Range<u64>) -> Vec<Range<u64>> {
        let found = self.files.iter().position(|stream| stream.file == file);
        let stream = match found.and_then(|at| self.files.remove(at)) {
            Some(mut stream) => {
                stream.note(&range);
                stream
            }
            None => Stream {
                file,
                run: range.end - range.start,
                next: range.end,
                pushed: range.end,
            },
        };
        self.files.push_front(stream);
        self.files.truncate(FILES);
        let window = self.max_window;
        self.files
            .front_mut()
            .map_or_else(Vec::new, |stream| stream.plan(window))
    }

    /// What of a piece is still ahead of its reader: to push the rest is work for nothing.
    pub fn still_ahead(&self, file: u64, piece: &Range<u64>) -> Option<Range<u64>> {
        let stream = self.files.iter().find(|stream| stream.file == file)?;
        let start = piece.start.max(stream.next);
        (start < piece.end && piece.end <= stream.pushed).then_some(start..piece.end)
    }
}

impl Stream {
    fn note(&mut self, range: &Range<u64>) {
        // The kernel has a few requests under way at once and they may come in any order.
        let slack = PIECE;
        let onward = range.end + slack >= self.next && range.start <= self.pushed + slack;
        if onward {
            // Pushed pages are read without a word: the distance counts, not the request.
            self.run += range.end.saturating_sub(self.next);
            self.next = self.next.max(range.end);
            self.pushed = self.pushed.max(self.next);
        } else {
            self.run = range.end - range.start;
            self.next = range.end;
            self.pushed = range.end;
        }
    }

    fn plan(&mut self, max_window: u64) -> Vec<Range<u64>> {
        if self.run < PROVEN {
            return Vec::new();
        }
        // Grows with what was read: a reader that stops soon wastes little.
        let end = self.next + max_window.min(4 * self.run);
        let mut pieces = Vec::new();
        if self.pushed == self.next {
            self.pushed += KERNEL_WINDOW;
        }
        loop {
            let start = self.pushed;
            // Pieces end where the file offset is a multiple of their size, gap included.
            let stop = (start / PIECE + 1) * PIECE;
            if stop > end {
                return pieces;
            }
            pieces.push(start..stop);
            self.pushed = stop;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const REQUEST: u64 = 128 << 10;

    #[test]
    fn nothing_before_a_reader_has_proven_itself() {
        let mut streams = Streams::new(4 * MIB);
        for n in 0..3 {
            let at = n * REQUEST;
            assert!(streams.on_read(7, at..at + REQUEST).is_empty());
        }
        let mut at: u64 = 12345;
        for _ in 0..1000 {
            at = at
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let start = (at % (1 << 40)) & !4095;
            assert!(streams.on_read(8, start..start + 4096).is_empty());
        }
    }

    #[test]
    fn pieces_follow_the_reader_with_gaps_between_them() {
        let mut streams = Streams::new(4 * MIB);
        let (mut pieces, mut at) = (Vec::new(), 0);
        while pieces.is_empty() {
            pieces = streams.on_read(7, at..at + REQUEST);
            at += REQUEST;
        }
        assert!(pieces[0].start >= at + KERNEL_WINDOW && pieces[0].end == MIB);
        // From here on the reader is only heard of at the gaps.
        let mut end = pieces[0].end;
        for _ in 0..100 {
            pieces.extend(streams.on_read(7, end - 4096..end));
            end += PIECE;
        }
        for pair in pieces.windows(2) {
            assert_eq!(pair[0].end, pair[1].start);
            assert_eq!(pair[1].end - pair[1].start, PIECE);
        }
        let pushed = pieces.last().unwrap().end;
        assert!(
            pushed <= end + 4 * MIB && pushed >= end + 3 * MIB,
            "{pushed} {end}"
        );
    }

    #[test]
    fn what_the_reader_has_passed_is_not_pushed() {
        let mut streams = Streams::new(4 * MIB);
        let mut pieces = Vec::new();
        for n in 0..16 {
            pieces.extend(streams.on_read(7, n * REQUEST..(n + 1) * REQUEST));
        }
        assert!(pieces.len() > 1);
        assert_eq!(streams.still_ahead(7, &pieces[0]), None);
        let last = pieces.last().unwrap();
        assert_eq!(streams.still_ahead(7, last), Some(last.clone()));
        assert_eq!(streams.still_ahead(8, last), None, "another file");
        // A jump elsewhere: what was planned is for nobody.
        assert!(
            streams
                .on_read(7, 900 * MIB..901 * MIB)
                .iter()
                .all(|piece| piece.start > 900 * MIB)
        );
        assert_eq!(streams.still_ahead(7, last), None);
    }

    #[test]
    fn many_files_are_forgotten() {
        let mut streams = Streams::new(4 * MIB);
        for file in 0..1000 {
            streams.on_read(file, 0..4096);
        }
        assert!(streams.files.len() <= FILES);
    }
}
