//! Detection of sequential reads, and how far ahead of them to read.
//!
//! One rule serves all readahead: the engine plans requests and decodes with it, a FUSE mount
//! without large readahead stores pages with it, a remote image fetches chunks with it. They differ
//! in the unit and in the [`WindowRules`].
//!
//! A read that begins near the end of an earlier one, or within the range that was requested ahead
//! of it, belongs to the same stream. Once a stream is proven, a window is requested ahead of it.
//! When the reader enters the part that was requested last (its start is the mark), the next window
//! is requested, twice as long. So between one and two windows are ahead of a reader, and a reader
//! that stops wastes no more than that.

use std::collections::VecDeque;
use std::ops::Range;

/// Shortest read, in bytes, that is taken for one of several in flight, as the kernel's readahead
/// makes them. Such reads may arrive in any order.
const LARGE_READ: u64 = 64 << 10;
/// Number of large reads by which a read may be early or late.
const READS_AT_ONCE: u64 = 4;
/// Fewest reads that the first window holds.
const READS_IN_WINDOW: u64 = 2;

/// Parameters that decide which reads are a stream, and how far ahead of it to read. In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRules {
    pub first: u64,
    /// The largest window; 0 turns readahead off.
    pub max: u64,
    /// Largest distance between the end of the last read and the next read of the same stream. For
    /// large reads, it is at least four times their length.
    pub slack: u64,
    /// Bytes that a reader must read in order before a window is requested.
    pub proof: u64,
    /// Bytes after the reader's position that another layer has already requested.
    pub lead: u64,
    /// Windows end at multiples of this in the file; 1 for anywhere.
    pub align: u64,
    /// Length of a first read, at the start of a file, that proves a stream by itself.
    pub trusted: u64,
}

/// A sequential reader, and the range that was requested ahead of it.
#[derive(Clone, Debug)]
pub struct SequentialWindow {
    run: u64,
    /// End of the furthest read.
    next: u64,
    /// End of the requested range.
    ahead: u64,
    /// Length of the last window; 0 until the stream is proven.
    window: u64,
    /// Start of the part that was requested last.
    mark: u64,
}

/// The sequential readers of several files, which `K` identifies.
#[derive(Debug)]
pub struct SequentialStreams<K> {
    capacity: usize,
    /// Most recently used first.
    streams: VecDeque<(K, u64, SequentialWindow)>,
    begun: u64,
}

/// The stream that a read belongs to, and the range to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub stream: u64,
    /// The range to request now. Its start is the mark: a read that passes it requests the next
    /// range.
    pub ahead: Option<Range<u64>>,
    /// The stream that was forgotten to make room for a new one.
    pub evicted: Option<u64>,
}

impl SequentialWindow {
    #[must_use]
    pub const fn new(range: &Range<u64>) -> Self {
        Self {
            run: range.end - range.start,
            next: range.end,
            ahead: range.end,
            window: 0,
            mark: range.end,
        }
    }

    /// Returns whether a read of `range` belongs to this stream.
    #[must_use]
    pub fn continues_at(&self, range: &Range<u64>, rules: &WindowRules) -> bool {
        let len = range.end - range.start;
        let slack = if len >= LARGE_READ {
            rules.slack.max(len * READS_AT_ONCE)
        } else {
            rules.slack
        };
        let last = self.next.max(self.ahead) + slack;
        // A repeated read is not a step back.
        let first = self.next.saturating_sub(slack.max(len));
        range.start >= first && range.start <= last
    }

    /// Returns the part of `range` that was requested and that the reader has not passed.
    #[must_use]
    pub fn still_ahead(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let start = range.start.max(self.next);
        (start < range.end && range.end <= self.ahead).then_some(start..range.end)
    }

    /// Records a read that continues the stream. `end` is the end of the file. Returns the range to
    /// request now.
    fn advance(&mut self, range: &Range<u64>, end: u64, rules: &WindowRules) -> Option<Range<u64>> {
        if range.end <= self.next {
            return None;
        }
        self.run += range.end - self.next;
        self.next = range.end;
        self.ask(range, end, rules)
    }

    fn ask(&mut self, range: &Range<u64>, end: u64, rules: &WindowRules) -> Option<Range<u64>> {
        let is_ahead = self.window > 0 && self.next <= self.mark;
        if is_ahead || self.run < rules.proof {
            return None;
        }
        let len = range.end - range.start;
        self.window = (self.window * 2).max(rules.first);
        self.window = self.window.max(len * READS_IN_WINDOW);
        // The largest window shrinks when several streams share the memory for readahead.
        self.window = self.window.min(rules.max);
        self.mark = self.ahead.max(self.next + rules.lead);
        let window_end = self.mark + self.window;
        let window_end = window_end - window_end.checked_rem(rules.align).unwrap_or(0);
        self.ahead = window_end.min(end).max(self.mark);
        (self.mark < self.ahead).then_some(self.mark..self.ahead)
    }
}

impl<K: Copy + PartialEq> SequentialStreams<K> {
    /// Creates a record of at most `capacity` streams. The least recently used stream is forgotten
    /// first.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self {
            capacity,
            streams: VecDeque::new(),
            begun: 0,
        }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Records a read of `range` of the file `key`, whose length is `end`.
    pub fn on_read(&mut self, key: K, range: &Range<u64>, end: u64, rules: &WindowRules) -> Step {
        let continues = |(of, _, window): &(K, u64, SequentialWindow)| {
            *of == key && window.continues_at(range, rules)
        };
        let found = self.streams.iter().position(continues);
        if let Some((_, stream, mut window)) = found.and_then(|at| self.streams.remove(at)) {
            let ahead = window.advance(range, end, rules);
            self.streams.push_front((key, stream, window));
            return Step {
                stream,
                ahead,
                evicted: None,
            };
        }
        let evicted = if self.streams.len() >= self.capacity {
            self.streams.pop_back().map(|(_, stream, _)| stream)
        } else {
            None
        };
        self.begun += 1;
        let mut window = SequentialWindow::new(range);
        let is_trusted = range.start == 0 && range.end >= rules.trusted;
        let ahead = is_trusted.then(|| window.ask(range, end, rules)).flatten();
        self.streams.push_front((key, self.begun, window));
        Step {
            stream: self.begun,
            ahead,
            evicted,
        }
    }

    /// Returns the most recently read stream of the file `key`.
    pub fn last_of(&self, key: K) -> Option<&SequentialWindow> {
        let found = self.streams.iter().find(|(of, _, _)| *of == key);
        found.map(|(_, _, window)| window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const RULES: WindowRules = WindowRules {
        first: 128 * KIB,
        max: 4 * MIB,
        slack: 0,
        proof: 0,
        lead: 0,
        align: 1,
        trusted: 64 * KIB,
    };

    fn read(streams: &mut SequentialStreams<u8>, range: Range<u64>) -> Option<Range<u64>> {
        streams.on_read(0, &range, u64::MAX, &RULES).ahead
    }

    /// Reads a file of `size` bytes in pieces of `len`. Returns the requested ranges.
    fn sequence(len: u64, size: u64, rules: &WindowRules) -> Vec<Range<u64>> {
        let mut streams = SequentialStreams::new(8);
        let mut asked = Vec::new();
        let mut at = 0;
        while at < size {
            let end = (at + len).min(size);
            asked.extend(streams.on_read(7_u8, &(at..end), size, rules).ahead);
            at = end;
        }
        assert_eq!(streams.len(), 1);
        asked
    }

    #[test]
    fn windows_double_and_follow_each_other_without_a_gap() {
        for len in [4 * KIB, 128 * KIB, MIB] {
            let asked = sequence(len, 100 * MIB + 5, &RULES);
            let touches = |pair: &[Range<u64>]| pair[0].end == pair[1].start;
            assert!(asked.windows(2).all(touches), "{len}: {asked:?}");
            assert_eq!(asked.last().unwrap().end, 100 * MIB + 5);
            let lens: Vec<u64> = asked.iter().map(|range| range.end - range.start).collect();
            let (_, whole) = lens.split_last().unwrap();
            assert!(whole.is_sorted(), "{len}: {lens:?}");
            assert_eq!(whole.last(), Some(&(4 * MIB)));
            assert!(asked.len() < 35, "{len}: {}", asked.len());
        }
    }

    #[test]
    fn one_to_two_windows_are_ahead_of_a_reader() {
        let mut streams = SequentialStreams::new(8);
        let mut asked = 0;
        for at in (0..64 * MIB).step_by(128 << 10) {
            let range = at..at + 128 * KIB;
            let step = read(&mut streams, range.clone());
            asked = step.map_or(asked, |ahead| ahead.end);
            let distance = asked - range.end;
            assert!(distance <= 8 * MIB, "{distance} at {at}");
            assert!(
                at < 4 * MIB || distance >= 4 * MIB - 128 * KIB,
                "{distance} at {at}"
            );
        }
    }

    #[test]
    fn a_small_read_is_no_proof_and_the_next_one_is() {
        let mut streams = SequentialStreams::new(8);
        assert_eq!(read(&mut streams, 0..4096), None);
        assert_eq!(read(&mut streams, 0..4096), None, "the same again");
        assert_eq!(read(&mut streams, 4096..8192), Some(8192..8192 + 128 * KIB));
        assert_eq!(
            read(&mut streams, 8192..12288).map(|ahead| ahead.start),
            Some(8192 + 128 * KIB)
        );
        assert_eq!(read(&mut streams, 12288..16384), None, "before the mark");
    }

    #[test]
    fn a_stream_is_proven_by_as_many_bytes_as_the_rules_say() {
        let rules = WindowRules {
            proof: 512 * KIB,
            trusted: 512 * KIB,
            ..RULES
        };
        let asked = sequence(128 * KIB, MIB, &rules);
        assert_eq!(asked[0].start, 512 * KIB);
        assert_eq!(sequence(512 * KIB, MIB, &rules)[0].start, 512 * KIB);
    }

    #[test]
    fn what_another_layer_has_asked_for_is_left_out() {
        let lead = 128 * KIB;
        let asked = sequence(128 * KIB, 10 * MIB, &WindowRules { lead, ..RULES });
        assert_eq!(asked[0].start, 256 * KIB);
        assert!(asked.windows(2).all(|pair| pair[0].end == pair[1].start));
    }

    #[test]
    fn windows_end_where_they_are_to() {
        let rules = WindowRules {
            first: MIB,
            align: MIB,
            ..RULES
        };
        let asked = sequence(96 * KIB, 30 * MIB, &rules);
        assert!(asked.iter().all(|range| range.end % MIB == 0), "{asked:?}");
        assert!(asked.windows(2).all(|pair| pair[0].end == pair[1].start));
    }

    #[test]
    fn random_reads_ask_for_nothing_and_old_streams_are_forgotten() {
        let mut streams = SequentialStreams::new(8);
        let (mut at, mut evicted) = (12345_u64, 0);
        for _ in 0..1000 {
            at = at
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let start = at % (1 << 40);
            let step = streams.on_read(0_u8, &(start..start + 4096), u64::MAX, &RULES);
            assert_eq!(step.ahead, None);
            evicted += u64::from(step.evicted.is_some());
        }
        assert_eq!((streams.len(), evicted), (8, 992));
    }

    #[test]
    fn readers_of_one_file_are_streams_of_their_own() {
        let mut streams = SequentialStreams::new(8);
        for n in 0..10 {
            for start in [n * MIB, 500 * MIB + n * MIB] {
                read(&mut streams, start..start + MIB);
            }
        }
        assert_eq!(streams.len(), 2);
        assert!(
            streams
                .last_of(0)
                .unwrap()
                .still_ahead(&(510 * MIB..512 * MIB))
                .is_some()
        );
    }

    #[test]
    fn large_reads_may_arrive_in_any_order() {
        let mut streams = SequentialStreams::new(8);
        let mut asked = 0;
        for n in [1, 0, 3, 2, 5, 4, 7, 6] {
            if let Some(ahead) = read(&mut streams, n * MIB..(n + 1) * MIB) {
                assert!(ahead.start >= asked, "nothing twice");
                asked = ahead.end;
            }
        }
        assert_eq!(streams.len(), 1);
        assert!(asked > 10 * MIB);
    }

    #[test]
    fn what_a_reader_has_passed_is_no_longer_ahead() {
        let mut streams = SequentialStreams::new(8);
        for at in (0..MIB).step_by(128 << 10) {
            read(&mut streams, at..at + 128 * KIB);
        }
        let window = streams.last_of(0).unwrap();
        assert_eq!(window.still_ahead(&(0..MIB)), None);
        assert_eq!(window.still_ahead(&(MIB - 1..MIB + 1)), Some(MIB..MIB + 1));
        assert_eq!(window.still_ahead(&(MIB..1 << 40)), None, "never asked for");
        assert!(streams.last_of(1).is_none());
    }

    #[test]
    fn nothing_is_asked_for_where_the_largest_window_is_empty() {
        let rules = WindowRules { max: 0, ..RULES };
        assert!(sequence(128 * KIB, 10 * MIB, &rules).is_empty());
    }
}
