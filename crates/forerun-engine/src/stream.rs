//! Who reads what sequentially, and how far ahead of it to be.
//!
//! Streams are told by node and position, not by open file: a read-only FUSE mount has no open
//! files (the kernel is told to skip OPEN), and several readers of one file are several streams.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use forerun_vfs::NodeId;

/// Streams remembered, the least recently used forgotten first.
const STREAMS: usize = 64;
/// A first read of at least this much is taken for the start of a sequential one.
const LARGE_READ: u64 = 64 << 10;
/// The window a stream starts with.
const FIRST_WINDOW: u64 = 128 << 10;

/// The sequential readers of one image.
pub struct Streams {
    max_window: u64,
    max_request: u64,
    streams: Mutex<VecDeque<Stream>>,
}

struct Stream {
    node: NodeId,
    /// End of the furthest read so far.
    next: u64,
    /// Everything before this has been asked for ahead of the reader.
    ahead: u64,
    window: u64,
}

impl Streams {
    /// Keeps at most `max_window` bytes ahead of a stream, in steps of whole `max_request`s where
    /// the window is large enough for that.
    pub fn new(max_window: u64, max_request: u64) -> Self {
        Self {
            max_window,
            max_request: max_request.max(1),
            streams: Mutex::default(),
        }
    }

    /// Notes a read of `range` in a file of `size` bytes; gives what to read ahead now, if anything.
    pub fn on_read(&self, node: NodeId, range: &Range<u64>, size: u64) -> Option<Range<u64>> {
        if self.max_window == 0 || range.is_empty() {
            return None;
        }
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
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
                }
            }
        };
        // Several streams share the memory for what is read ahead.
        let active = forerun_io::u64_from(streams.len() / 8).max(1);
        stream.window = stream.window.min(self.max_window / active);
        stream.next = stream.next.max(range.end);
        stream.ahead = stream.ahead.max(stream.next);
        let plan = self.plan(&mut stream, size);
        streams.push_front(stream);
        streams.truncate(STREAMS);
        plan
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

    #[test]
    fn a_sequential_reader_is_always_behind_what_was_asked_for() {
        let streams = Streams::new(8 * MIB, 4 * MIB);
        let (size, mut asked, mut requests) = (100 * MIB + 5, 128 << 10, 0);
        let mut at = 0;
        while at < size {
            let end = (at + (128 << 10)).min(size);
            if let Some(plan) = streams.on_read(NODE, &(at..end), size) {
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
        assert_eq!(streams.on_read(NODE, &(0..4096), 100 * MIB), None);
        assert_eq!(
            streams.on_read(NODE, &(4096..8192), 100 * MIB),
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
            assert_eq!(streams.on_read(NODE, &(start..start + 4096), 1 << 41), None);
        }
    }

    #[test]
    fn two_readers_of_one_file_are_two_streams() {
        let streams = Streams::new(8 * MIB, 4 * MIB);
        for n in 0..10 {
            let (low, high) = (n * MIB, 500 * MIB + n * MIB);
            streams.on_read(NODE, &(low..low + MIB), 1000 * MIB);
            streams.on_read(NODE, &(high..high + MIB), 1000 * MIB);
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
        assert_eq!(streams.on_read(NODE, &(0..MIB), 100 * MIB), None);
        assert_eq!(streams.on_read(NODE, &(MIB..2 * MIB), 100 * MIB), None);
    }
}
