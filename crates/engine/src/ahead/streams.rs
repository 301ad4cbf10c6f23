//! The sequential readers of an image, and the ranges to read ahead of them.
//!
//! A stream is known by node and position, not by open file: a read-only FUSE mount has no open
//! files (the kernel is told to skip OPEN), and several readers of one file are several streams.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard};

use forerun_io::{SequentialStreams, Unpoisoned, WindowRules, wait};
use forerun_vfs::NodeId;

use crate::tuning::{FIRST_WINDOW, STREAMS, STREAMS_AT_FULL_WINDOW, TRUSTED_READ};
use crate::waiting::wait_slice;

pub struct Streams {
    max_window: u64,
    streams: Mutex<SequentialStreams<NodeId>>,
    /// Ranges that a thread is planning: their requests are not queued yet.
    claimed: Mutex<Vec<(NodeId, Range<u64>)>>,
    released: Condvar,
}

/// The claim to plan a range ahead of a reader. Reads of the range wait until the claim is dropped.
pub struct ClaimedRange<'s> {
    streams: &'s Streams,
    node: NodeId,
    pub range: Range<u64>,
}

impl Drop for ClaimedRange<'_> {
    fn drop(&mut self) {
        let mut claimed = lock(&self.streams.claimed);
        let mine = |other: &(NodeId, Range<u64>)| other.0 == self.node && other.1 == self.range;
        if let Some(at) = claimed.iter().position(mine) {
            claimed.swap_remove(at);
        }
        drop(claimed);
        self.streams.released.notify_all();
    }
}

impl Streams {
    /// Creates the streams of one image. Each may be read ahead by at most `max_window` bytes.
    pub fn new(max_window: u64) -> Self {
        Self {
            max_window,
            streams: Mutex::new(SequentialStreams::new(STREAMS)),
            claimed: Mutex::default(),
            released: Condvar::new(),
        }
    }

    /// Records a read of `range` in a file of `size` bytes. Returns the range that the caller must
    /// plan now, if any.
    ///
    /// Waits while another thread plans a part of `range`. Without the wait both threads would read
    /// that part, and this one block by block.
    pub fn on_read(&self, node: NodeId, range: &Range<u64>, size: u64) -> Option<ClaimedRange<'_>> {
        if self.max_window == 0 || range.is_empty() {
            return None;
        }
        let claim = self.claim(node, range, size);
        // Later claims lie behind this range, so the wait ends.
        let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        let is_wanted = |claimed: &[(NodeId, Range<u64>)]| {
            let mut of_file = claimed.iter().filter(|(of, _)| *of == node);
            of_file.any(|(_, other)| overlaps(other))
        };
        let mut claimed = lock(&self.claimed);
        while is_wanted(&claimed) && wait::allowed().is_ok() {
            claimed = wait_slice(&self.released, claimed);
        }
        drop(claimed);
        claim
    }

    fn claim(&self, node: NodeId, range: &Range<u64>, size: u64) -> Option<ClaimedRange<'_>> {
        let mut streams = lock(&self.streams);
        // Several streams share the memory for readahead.
        let shares = (streams.len() / STREAMS_AT_FULL_WINDOW).max(1);
        let rules = WindowRules {
            first: FIRST_WINDOW,
            // A reader has up to two windows ahead of it.
            max: self.max_window / 2 / forerun_io::u64_from(shares),
            slack: 0,
            proof: 0,
            lead: 0,
            align: 1,
            trusted: TRUSTED_READ,
        };
        let range = streams.on_read(node, range, size, &rules).ahead?;
        // The lock on `streams` keeps other readers away until the range is claimed.
        lock(&self.claimed).push((node, range.clone()));
        Some(ClaimedRange {
            streams: self,
            node,
            range,
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unpoisoned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(1);
    const MIB: u64 = 1 << 20;

    /// Returns the range to read ahead, and drops the claim at once.
    fn read(streams: &Streams, range: Range<u64>, size: u64) -> Option<Range<u64>> {
        let claim = streams.on_read(NODE, &range, size);
        claim.map(|claim| claim.range.clone())
    }

    #[test]
    fn a_reader_waits_for_a_range_that_is_about_to_be_planned() {
        let streams = Streams::new(8 * MIB);
        let claim = streams.on_read(NODE, &(0..MIB), 100 * MIB).unwrap();
        assert_eq!(claim.range, MIB..3 * MIB);
        // Reads of another file, and of another part of this one, do not wait.
        assert!(
            streams
                .on_read(NodeId(2), &(MIB..MIB + 1), 4 * MIB)
                .is_none()
        );
        assert_eq!(read(&streams, 50 * MIB..50 * MIB + 1, 100 * MIB), None);
        let (send, answered) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let next = read(&streams, MIB..2 * MIB, 100 * MIB);
                send.send(next).unwrap();
            });
            let short = std::time::Duration::from_millis(50);
            assert!(answered.recv_timeout(short).is_err(), "it waits");
            drop(claim);
            let long = std::time::Duration::from_secs(60);
            assert!(answered.recv_timeout(long).unwrap().is_some());
        });
        assert!(lock(&streams.claimed).is_empty());
    }

    #[test]
    fn the_window_is_ahead_of_a_sequential_reader() {
        let streams = Streams::new(8 * MIB);
        let (size, mut asked, mut plans) = (100 * MIB + 5, 128 << 10, 0);
        let mut at = 0;
        while at < size {
            let end = (at + (128 << 10)).min(size);
            if let Some(plan) = read(&streams, at..end, size) {
                assert_eq!(plan.start, asked.max(end), "no gap and nothing twice");
                assert!(plan.end <= size && plan.end - plan.start <= 4 * MIB);
                (asked, plans) = (plan.end, plans + 1);
            }
            assert!(
                end < 2 * MIB || asked >= (end + 3 * MIB).min(size),
                "{asked} at {end}"
            );
            at = end;
        }
        assert_eq!(asked, size);
        assert!(plans < 35, "{plans}");
    }

    #[test]
    fn many_streams_share_the_window() {
        let streams = Streams::new(8 * MIB);
        for n in 0..64 {
            streams.on_read(NodeId(n), &(0..4096), MIB);
        }
        let mut longest = 0;
        for at in (4096..8 * MIB).step_by(64 << 10) {
            let plan = read(&streams, at..at + (64 << 10), 100 * MIB);
            longest = plan.map_or(longest, |plan| longest.max(plan.end - plan.start));
        }
        assert_eq!(longest, MIB / 2);
    }

    #[test]
    fn nothing_is_planned_when_readahead_is_off() {
        let streams = Streams::new(0);
        assert_eq!(read(&streams, 0..MIB, 100 * MIB), None);
        assert_eq!(read(&streams, MIB..2 * MIB, 100 * MIB), None);
    }
}
