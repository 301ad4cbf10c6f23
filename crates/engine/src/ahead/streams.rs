//! Who reads what sequentially, and how far ahead of it to be.
//!
//! Streams are told by node and position, not by open file: a read-only FUSE mount has no open
//! files (the kernel is told to skip OPEN), and several readers of one file are several streams.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use forerun_io::wait;
use forerun_vfs::NodeId;

use super::tree::FILE_AHEAD;
use crate::read::wait_slice;

/// Streams remembered, the least recently used forgotten first.
const STREAMS: usize = 64;
/// A first read of at least this much is taken for the start of a sequential one.
const LARGE_READ: u64 = 64 << 10;
/// Who reads this much at a time reads several such pieces side by side, as the kernel does.
const SIDE_BY_SIDE: u64 = 512 << 10;
/// The window a stream starts with.
const FIRST_WINDOW: u64 = 128 << 10;

/// The sequential readers of one image.
pub struct Streams {
    max_window: u64,
    max_request: u64,
    streams: Mutex<VecDeque<Stream>>,
    /// What somebody is about to start reading ahead: neither there yet nor left to others.
    begun: Mutex<Vec<(NodeId, Range<u64>)>>,
    started: Condvar,
}

/// The duty to read a range ahead; others who come to it wait until this is dropped.
pub struct Begun<'s> {
    streams: &'s Streams,
    node: NodeId,
    pub range: Range<u64>,
    /// From here on its blocks are left to who reads them to be decoded.
    pub left: Option<u64>,
}

/// What is known of a read.
#[derive(Default)]
pub struct Noted<'s> {
    /// What to read ahead now.
    pub begun: Option<Begun<'s>>,
    /// Whether the blocks in its range were left to it.
    pub is_left: bool,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut begun = lock(&self.streams.begun);
        let mine = |other: &(NodeId, Range<u64>)| other.0 == self.node && other.1 == self.range;
        if let Some(at) = begun.iter().position(mine) {
            begun.swap_remove(at);
        }
        drop(begun);
        self.streams.started.notify_all();
    }
}

struct Stream {
    node: NodeId,
    /// End of the furthest read so far.
    next: u64,
    /// Everything before this has been asked for ahead of the reader.
    ahead: u64,
    window: u64,
    /// From here on to `ahead`, nobody but the reader decodes blocks. Not in what is decoded of a
    /// file as one of a tree.
    left: Option<u64>,
}

impl Streams {
    /// Keeps at most `max_window` bytes ahead of a stream, in steps of whole `max_request`s where
    /// the window is large enough for that.
    pub fn new(max_window: u64, max_request: u64) -> Self {
        Self {
            max_window,
            max_request: max_request.max(1),
            streams: Mutex::default(),
            begun: Mutex::default(),
            started: Condvar::new(),
        }
    }

    /// Notes a read of `range` in a file of `size` bytes; gives what to read ahead now, if anything.
    /// Where somebody else is about to start on some of `range`, it waits for that: the bytes would
    /// be read twice, and by who is in a hurry in single blocks. Where `may_leave`, decoding can be
    /// left to readers, if they read side by side.
    pub fn on_read(
        &self,
        node: NodeId,
        range: &Range<u64>,
        size: u64,
        may_leave: bool,
    ) -> Noted<'_> {
        if self.max_window == 0 || range.is_empty() {
            return Noted::default();
        }
        let may_leave = may_leave && range.end - range.start >= SIDE_BY_SIDE;
        let noted = self.note(node, range, size, may_leave);
        // What is begun later lies behind this range, so that the wait has an end.
        let is_wanted = |begun: &[(NodeId, Range<u64>)]| {
            let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
            begun
                .iter()
                .any(|(of, other)| *of == node && overlaps(other))
        };
        let mut begun = lock(&self.begun);
        while is_wanted(&begun) && wait::allowed().is_ok() {
            begun = wait_slice(&self.started, begun);
        }
        drop(begun);
        noted
    }

    fn note(&self, node: NodeId, range: &Range<u64>, size: u64, may_leave: bool) -> Noted<'_> {
        let mut streams = lock(&self.streams);
        let len = range.end - range.start;
        let found = streams
            .iter()
            .position(|stream| stream.node == node && stream.goes_on_at(range));
        let mut stream = match found.and_then(|at| streams.remove(at)) {
            Some(mut stream) => {
                stream.window = stream
                    .window
                    .saturating_mul(2)
                    .max(FIRST_WINDOW)
                    .max(2 * len);
                stream
            }
            None => {
                let window = if len >= LARGE_READ && range.start == 0 {
                    2 * len
                } else {
                    0
                };
                Stream {
                    node,
                    next: range.end,
                    ahead: range.end,
                    window,
                    left: None,
                }
            }
        };
        // Several streams share the memory for what is read ahead.
        let active = forerun_io::u64_from(streams.len() / 8).max(1);
        stream.window = stream.window.min(self.max_window / active);
        stream.next = stream.next.max(range.end);
        stream.ahead = stream.ahead.max(stream.next);
        let is_left = may_leave && stream.left.is_some_and(|left| range.start >= left);
        let begun = self.plan(&mut stream, size).map(|range| {
            stream.left = may_leave.then(|| stream.left.unwrap_or(range.start.max(FILE_AHEAD)));
            // Before the next reader is told that it is seen to.
            lock(&self.begun).push((node, range.clone()));
            Begun {
                streams: self,
                node,
                range,
                left: stream.left,
            }
        });
        streams.push_front(stream);
        streams.truncate(STREAMS);
        Noted { begun, is_left }
    }

    fn plan(&self, stream: &mut Stream, size: u64) -> Option<Range<u64>> {
        if stream.ahead - stream.next > stream.window / 2 || stream.ahead >= size {
            return None;
        }
        let mut end = stream.next.saturating_add(stream.window);
        let len = end.saturating_sub(stream.ahead);
        if len > self.max_request {
            end -= len % self.max_request;
        }
        let end = end.min(size);
        let plan = stream.ahead..end;
        stream.ahead = stream.ahead.max(end);
        (!plan.is_empty()).then_some(plan)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    /// Right behind what was read, or in what was read ahead of it. Reads of one stream that run
    /// side by side may arrive in any order, so a neighbour a little further on counts too.
    fn goes_on_at(&self, range: &Range<u64>) -> bool {
        let len = range.end - range.start;
        let reach = if len >= LARGE_READ {
            self.next + 4 * len
        } else {
            self.next
        };
        range.start + len >= self.next && range.start <= reach.max(self.ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(1);
    const MIB: u64 = 1 << 20;

    /// What is read ahead, as if that was started at once.
    fn read(streams: &Streams, range: Range<u64>, size: u64) -> Option<Range<u64>> {
        let noted = streams.on_read(NODE, &range, size, false);
        noted.begun.map(|begun| begun.range.clone())
    }

    #[test]
    fn who_comes_to_what_is_about_to_be_read_waits_for_that_and_nobody_else_does() {
        let streams = Streams::new(8 * MIB, 4 * MIB);
        let noted = streams.on_read(NODE, &(0..MIB), 100 * MIB, false);
        let begun = noted.begun.unwrap();
        assert_eq!(begun.range, MIB..3 * MIB);
        // Another file, and another part of this one.
        let other = streams.on_read(NodeId(2), &(MIB..MIB + 1), 4 * MIB, false);
        assert!(other.begun.is_none());
        assert_eq!(read(&streams, 50 * MIB..50 * MIB + 1, 100 * MIB), None);
        let (send, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let next = read(&streams, MIB..2 * MIB, 100 * MIB);
                send.send(next).unwrap();
            });
            let short = std::time::Duration::from_millis(50);
            assert!(told.recv_timeout(short).is_err(), "it waits");
            drop(begun);
            let long = std::time::Duration::from_secs(60);
            assert!(told.recv_timeout(long).unwrap().is_some());
        });
        assert!(lock(&streams.begun).is_empty());
    }

    #[test]
    fn decoding_is_left_to_long_reads_behind_what_is_decoded_of_trees() {
        let streams = Streams::new(8 * MIB, 4 * MIB);
        let left = |range: Range<u64>, may_leave| {
            let noted = streams.on_read(NODE, &range, 100 * MIB, may_leave);
            (noted.begun.and_then(|begun| begun.left), noted.is_left)
        };
        // What begins in the first MiB was not left to anybody, but what is planned behind it is.
        assert_eq!(left(0..MIB / 2, true), (Some(FILE_AHEAD), false));
        assert_eq!(left(MIB / 2..3 * MIB / 2, true), (Some(FILE_AHEAD), false));
        assert_eq!(
            left(3 * MIB / 2..5 * MIB / 2, true),
            (Some(FILE_AHEAD), true)
        );
        // Who may not leave it, or reads in small pieces, has no part in that.
        assert!(!left(5 * MIB / 2..7 * MIB / 2, false).1);
        assert!(!left(7 * MIB / 2..7 * MIB / 2 + SIDE_BY_SIDE - 1, true).1);
    }

    #[test]
    fn a_sequential_reader_is_always_behind_what_was_asked_for() {
        let streams = Streams::new(8 * MIB, 4 * MIB);
        let (size, mut asked, mut requests) = (100 * MIB + 5, 128 << 10, 0);
        let mut at = 0;
        while at < size {
            let end = (at + (128 << 10)).min(size);
            if let Some(plan) = read(&streams, at..end, size) {
                assert_eq!(plan.start, asked.max(end), "no gap and nothing twice");
                assert!(plan.end <= size && plan.end - plan.start <= 8 * MIB);
                asked = plan.end;
                requests += 1;
            }
            assert!(
                end < 2 * MIB || asked >= (end + 3 * MIB).min(size),
                "{asked} at {end}"
            );
            at = end;
        }
        assert_eq!(asked, size);
        assert!(requests < 35, "{requests}");
    }

    #[test]
    fn a_single_small_read_reads_nothing_ahead() {
        let streams = Streams::new(8 * MIB, 4 * MIB);
        assert_eq!(read(&streams, 0..4096, 100 * MIB), None);
        assert_eq!(
            read(&streams, 4096..8192, 100 * MIB),
            Some(8192..8192 + FIRST_WINDOW)
        );
    }

    #[test]
    fn random_reads_read_nothing_ahead() {
        let streams = Streams::new(8 * MIB, 4 * MIB);
        let mut at: u64 = 12345;
        for _ in 0..1000 {
            at = at
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let start = at % (1 << 40);
            assert_eq!(read(&streams, start..start + 4096, 1 << 41), None);
        }
    }

    #[test]
    fn two_readers_of_one_file_are_two_streams() {
        let streams = Streams::new(8 * MIB, 4 * MIB);
        for n in 0..10 {
            let (low, high) = (n * MIB, 500 * MIB + n * MIB);
            read(&streams, low..low + MIB, 1000 * MIB);
            read(&streams, high..high + MIB, 1000 * MIB);
        }
        let streams = streams.streams.into_inner().unwrap();
        assert_eq!(streams.len(), 2);
        assert!(
            streams
                .iter()
                .all(|stream| stream.ahead >= stream.next + 4 * MIB)
        );
    }

    #[test]
    fn no_readahead_when_turned_off() {
        let streams = Streams::new(0, 4 * MIB);
        assert_eq!(read(&streams, 0..MIB, 100 * MIB), None);
        assert_eq!(read(&streams, MIB..2 * MIB, 100 * MIB), None);
    }
}
