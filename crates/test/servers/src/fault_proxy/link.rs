//! Latency, and a line that all connections share.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use forerun_io::Unpoisoned;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The time from a request to the first byte of its answer, and the time of a new connection.
    pub rtt: Duration,
    /// Bytes per second in each direction. `None` means no limit.
    pub bytes_per_second: Option<u64>,
}

/// Bytes that pass at once: a third of a millisecond at 100 MB/s. Shorter pauses would be
/// inaccurate.
pub const SLICE: usize = 32 << 10;

/// A sender that was late, because it or its server had no CPU, may catch up by this much of the
/// line's time, as queues in a real network do. The average stays exact.
const QUEUE: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub struct Lines {
    link: Mutex<Link>,
    pub up: Line,
    pub down: Line,
}

#[derive(Debug)]
pub struct Line {
    /// When everything sent so far has passed.
    free: Mutex<Instant>,
}

impl Lines {
    pub fn new() -> Self {
        let line = || Line {
            free: Mutex::new(Instant::now()),
        };
        Self {
            link: Mutex::default(),
            up: line(),
            down: line(),
        }
    }

    pub fn set(&self, link: Link) {
        *self.link.lock().unpoisoned() = link;
    }

    pub fn link(&self) -> Link {
        *self.link.lock().unpoisoned()
    }

    /// Waits until `bytes` have passed on one of the two lines.
    pub fn pass(&self, line: &Line, bytes: usize) {
        if let Some(rate) = self.link().bytes_per_second {
            let passed = line.reserve(bytes, rate, Instant::now());
            thread::sleep(passed.saturating_duration_since(Instant::now()));
        }
    }
}

impl Line {
    /// Reserves the line for bytes that are sent `now`, after all earlier ones. Returns when they
    /// will have passed.
    fn reserve(&self, bytes: usize, rate: u64, now: Instant) -> Instant {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let nanos = bytes.saturating_mul(1_000_000_000) / rate.max(1);
        let mut free = self.free.lock().unpoisoned();
        let earliest = now.checked_sub(QUEUE).unwrap_or(now);
        *free = (*free).max(earliest) + Duration::from_nanos(nanos);
        *free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time_one_after_the_other() {
        let lines = Lines::new();
        let start = Instant::now() + Duration::from_secs(1);
        let sent = |bytes, at| lines.down.reserve(bytes, 1_000_000, at) - start;
        // An idle line lets a queue's worth pass at once.
        let first = lines.down.reserve(1000, 1_000_000, start);
        assert_eq!(first, start - Duration::from_millis(4));
        for _ in 0..4 {
            sent(1000, start);
        }
        // After that each byte takes its time, and a late sender catches up.
        assert_eq!(sent(1000, start), Duration::from_millis(1));
        assert_eq!(sent(2000, start), Duration::from_millis(3));
        let late = start + Duration::from_millis(7);
        assert_eq!(sent(1000, late), Duration::from_millis(4));
    }
}
