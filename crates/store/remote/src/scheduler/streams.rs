//! Readers that go forward, recognised by where they read, and what to fetch ahead of them.
//!
//! Only reads that miss, and those that come by a mark, are seen here. A read near the end of an
//! earlier one, or within what was fetched ahead of it, belongs to the same stream; the second one
//! confirms it. From then on a window is asked for ahead of it, and when the reader enters the part
//! asked for last, the next window, twice as long. So one to two windows are on their way ahead of a
//! reader, and one that stops costs no more than that.

use std::ops::Range;

/// Streams known at a time.
const STREAMS: usize = 32;
/// The first window.
const FIRST_WINDOW: u64 = 1 << 20;

/// What the read of a stream calls for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advance {
    /// Number of the stream.
    pub stream: u64,
    /// Bytes to fetch ahead.
    pub range: Range<u64>,
    /// The byte at which the stream is to be looked at again.
    pub mark: u64,
}

#[derive(Clone, Debug)]
struct Stream {
    id: u64,
    /// Behind the last byte that was read.
    next: u64,
    /// Behind the last byte that was asked for ahead.
    ahead: u64,
    /// Where the part begins that was asked for last.
    mark: u64,
    /// Length of the last window; 0 until the stream is confirmed.
    window: u64,
    used: u64,
}

/// The streams of one image.
#[derive(Debug)]
pub struct Streams {
    streams: Vec<Stream>,
    len: u64,
    chunk: u64,
    max_window: u64,
    clock: u64,
    /// The stream that was given up for a new one.
    dropped: Option<u64>,
}

impl Streams {
    /// For an image of `len` bytes, with windows up to `max_window`.
    pub const fn new(len: u64, chunk: u64, max_window: u64) -> Self {
        Self {
            streams: Vec::new(),
            len,
            chunk,
            max_window,
            clock: 0,
            dropped: None,
        }
    }

    /// A read of `range` was seen.
    pub fn touch(&mut self, range: &Range<u64>) -> Option<Advance> {
        self.clock = self.clock.saturating_add(1);
        let read = range.end.saturating_sub(range.start);
        // Threads of one reader come out of order by some reads.
        let slack = read.saturating_mul(2).saturating_add(self.chunk);
        let (clock, len) = (self.clock, self.len);
        let mine = self.streams.iter_mut().filter(|stream| {
            let from = stream.next.saturating_sub(slack);
            let to = stream.ahead.max(stream.next).saturating_add(slack);
            range.start >= from && range.start <= to
        });
        let Some(stream) = mine.min_by_key(|stream| stream.next.abs_diff(range.start)) else {
            self.begin(range);
            return None;
        };
        stream.used = clock;
        if range.end <= stream.next && stream.window == 0 {
            return None;
        }
        stream.next = stream.next.max(range.end);
        if stream.window == 0 {
            stream.window = FIRST_WINDOW.min(self.max_window);
            stream.ahead = stream.next;
        } else if range.end > stream.mark || stream.next > stream.ahead {
            stream.window = stream.window.saturating_mul(2).min(self.max_window);
        } else {
            return None;
        }
        let from = stream.ahead.max(stream.next);
        let to = from.saturating_add(stream.window).min(len);
        (stream.ahead, stream.mark) = (to, from);
        let advance = Advance {
            stream: stream.id,
            range: from..to,
            mark: from,
        };
        (from < to).then_some(advance)
    }

    /// The stream given up since this was asked last: what is queued for it is stale.
    pub const fn dropped(&mut self) -> Option<u64> {
        self.dropped.take()
    }

    fn begin(&mut self, range: &Range<u64>) {
        if self.streams.len() >= STREAMS {
            let oldest = self
                .streams
                .iter()
                .enumerate()
                .min_by_key(|(_, stream)| stream.used);
            if let Some(oldest) = oldest.map(|(index, _)| index) {
                self.dropped = Some(self.streams.swap_remove(oldest).id);
            }
        }
        self.streams.push(Stream {
            id: self.clock,
            next: range.end,
            ahead: range.end,
            mark: range.end,
            window: 0,
            used: self.clock,
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    const K: u64 = 1 << 10;
    const M: u64 = 1 << 20;

    #[test]
    fn windows_double_as_the_reader_enters_them() {
        let mut streams = Streams::new(100 * M, 64 * K, 8 * M);
        assert_eq!(streams.touch(&(0..4 * K)), None);
        let first = streams.touch(&(64 * K..68 * K)).unwrap();
        assert_eq!(first.range, 68 * K..68 * K + M);
        assert_eq!(first.mark, 68 * K);
        let mut covered = first.range.end;
        let mut mark = first.mark;
        let mut windows = Vec::new();
        while covered < 60 * M {
            let next = streams.touch(&(mark..mark + 4 * K)).unwrap();
            assert_eq!(next.range.start, covered, "no gap, nothing twice");
            covered = next.range.end;
            mark = next.mark;
            windows.push(next.range.end - next.range.start);
        }
        assert!(
            windows.windows(2).all(|pair| pair[0] <= pair[1]),
            "{windows:?}"
        );
        assert!(windows.iter().all(|window| *window <= 8 * M));
        assert!(*windows.last().unwrap() >= 4 * M);
        assert_eq!(streams.streams.len(), 1);
    }

    #[test]
    fn random_reads_are_no_stream_and_old_streams_go() {
        let mut streams = Streams::new(1 << 40, 64 * K, 8 * M);
        let mut dropped = 0;
        for n in 0..1000_u64 {
            let at = (n * 7919 % 1000) * 100 * M;
            assert_eq!(streams.touch(&(at..at + 4 * K)), None, "{n}");
            dropped += usize::from(streams.dropped().is_some());
        }
        assert_eq!(dropped, 1000 - STREAMS);
    }

    #[test]
    fn threads_that_come_out_of_order_are_one_reader() {
        let mut streams = Streams::new(1 << 30, 64 * K, 8 * M);
        let order = [1, 0, 3, 2, 5, 4, 7, 6];
        let mut asked = 0;
        for n in order {
            if let Some(advance) = streams.touch(&(n * 4 * M..(n + 1) * 4 * M)) {
                assert!(advance.range.start >= asked, "nothing twice");
                asked = advance.range.end;
            }
        }
        assert_eq!(streams.streams.len(), 1);
        assert!(asked > 30 * M);
    }

    #[test]
    fn nothing_is_read_behind_the_end() {
        let mut streams = Streams::new(200 * K, 64 * K, 8 * M);
        streams.touch(&(0..64 * K));
        assert_eq!(
            streams.touch(&(64 * K..128 * K)).unwrap().range,
            128 * K..200 * K
        );
        assert_eq!(streams.touch(&(128 * K..200 * K)), None);
    }
}
