//! Stored bytes that are read ahead.
//!
//! A segment is one request to the source. It enters the table when it is planned, so that no
//! thread reads its bytes a second time: a reader that needs them waits, or makes the request
//! itself if no thread has begun it. A failed request leaves no bytes. A reader that waited for it
//! then reads only the bytes it needs, so that one bad sector fails only the reads of that sector.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

use forerun_io::{BlobId, Counter, IoStats, Pattern, Unpoisoned, wait};

use super::buffer::Buffer;
use crate::tuning::SPENT_SEGMENTS;
use crate::waiting::wait_slice;

/// One request made ahead of the reader.
pub struct Segment {
    pub blob: BlobId,
    pub range: Range<u64>,
    pub pattern: Pattern,
    state: Mutex<SegmentState>,
    ended: Condvar,
    used: AtomicU64,
    spent: AtomicBool,
}

enum SegmentState {
    Queued,
    Reading,
    Ready(Arc<Buffer>),
    Failed,
}

pub enum Claim {
    /// The bytes are available; `waited` if the caller had to wait for them.
    Ready { buffer: Arc<Buffer>, waited: bool },
    /// No thread has begun the request: the caller must make it and call [`Unfinished::finish`].
    Read(Unfinished),
    /// The request failed, or this thread may not wait for it.
    Failed,
}

/// The duty to finish a segment. If this is dropped unfinished, the segment fails, or is queued
/// again if this thread may not wait for its bytes.
pub struct Unfinished(Arc<Segment>);

impl Segment {
    /// Returns the bytes, or the duty to read them. Waits while another thread has the duty.
    pub fn claim(self: &Arc<Self>) -> Claim {
        let mut state = lock(&self.state);
        let mut waited = false;
        loop {
            match &*state {
                SegmentState::Queued => {
                    *state = SegmentState::Reading;
                    return Claim::Read(Unfinished(Arc::clone(self)));
                }
                SegmentState::Ready(buffer) => {
                    return Claim::Ready {
                        buffer: Arc::clone(buffer),
                        waited,
                    };
                }
                SegmentState::Failed => return Claim::Failed,
                SegmentState::Reading => {
                    if wait::allowed().is_err() {
                        return Claim::Failed;
                    }
                    waited = true;
                    state = wait_slice(&self.ended, state);
                }
            }
        }
    }

    /// Takes the duty to read, unless a thread has or had it. Never waits.
    pub fn start(self: &Arc<Self>) -> Option<Unfinished> {
        let mut state = lock(&self.state);
        if !matches!(*state, SegmentState::Queued) {
            return None;
        }
        *state = SegmentState::Reading;
        Some(Unfinished(Arc::clone(self)))
    }

    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    pub fn in_flight(&self) -> bool {
        matches!(
            *lock(&self.state),
            SegmentState::Queued | SegmentState::Reading
        )
    }
}

impl Unfinished {
    pub fn segment(&self) -> &Arc<Segment> {
        &self.0
    }

    pub fn finish(self, buffer: Arc<Buffer>) {
        *lock(&self.0.state) = SegmentState::Ready(buffer);
        self.0.ended.notify_all();
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        if matches!(*state, SegmentState::Reading) {
            // A thread that may not wait leaves the request to one that may.
            *state = if wait::was_refused() {
                SegmentState::Queued
            } else {
                SegmentState::Failed
            };
            self.0.ended.notify_all();
        }
    }
}

/// The segments of all blobs; they never overlap.
pub struct Segments {
    budget: u64,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    bytes: u64,
    map: BTreeMap<(BlobId, u64), Arc<Segment>>,
    /// In the order of planning; may name spent or removed segments. Both queues hold weak
    /// references, so that the memory of removed segments is freed.
    planned: VecDeque<Weak<Segment>>,
    /// Segments whose bytes were all used: evicted first.
    spent: VecDeque<Weak<Segment>>,
}

impl Segments {
    /// Creates a table whose segments hold at most `budget` bytes.
    pub fn new(budget: u64) -> Self {
        Self {
            budget,
            table: Mutex::default(),
        }
    }

    pub const fn budget(&self) -> u64 {
        self.budget
    }

    pub fn find(&self, blob: BlobId, offset: u64) -> Option<Arc<Segment>> {
        lock(&self.table)
            .before(blob, offset)
            .filter(|segment| segment.range.contains(&offset))
            .cloned()
    }

    pub fn next_start(&self, blob: BlobId, range: Range<u64>) -> Option<u64> {
        let table = lock(&self.table);
        let (&(_, start), _) = table
            .map
            .range((blob, range.start)..(blob, range.end))
            .next()?;
        Some(start)
    }

    /// Plans segments of at most `max` bytes for the parts of `range` that are in none. Returns
    /// fewer, or none, if requests in flight take up the budget.
    pub fn plan(
        &self,
        blob: BlobId,
        range: Range<u64>,
        max: u64,
        pattern: Pattern,
        stats: &IoStats,
    ) -> Vec<Arc<Segment>> {
        let mut table = lock(&self.table);
        let mut new = Vec::new();
        let mut at = range.start;
        while at < range.end {
            if let Some(there) = table
                .before(blob, at)
                .filter(|segment| segment.range.contains(&at))
            {
                at = there.range.end;
                continue;
            }
            let next = table.map.range((blob, at)..(blob, range.end)).next();
            let end = next.map_or(range.end, |(&(_, start), _)| start);
            let end = at + (end - at).min(max);
            if !table.make_room(end - at, self.budget, stats) {
                break;
            }
            new.push(table.insert(blob, at..end, pattern));
            at = end;
        }
        new
    }

    /// Records that `bytes` of a segment were used. Returns whether all of its bytes are used now;
    /// such a segment is evicted first.
    pub fn used(&self, segment: &Arc<Segment>, bytes: u64) -> bool {
        let used = segment.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used < segment.len() || segment.spent.swap(true, Ordering::Relaxed) {
            return false;
        }
        let mut table = lock(&self.table);
        table.spent.push_back(Arc::downgrade(segment));
        // No reader will want this segment again, and the next request can reuse its memory while
        // it is warm.
        if table.spent.len() > SPENT_SEGMENTS
            && let Some(oldest) = table.spent.pop_front()
            && let Some(oldest) = oldest.upgrade()
        {
            table.remove(&oldest);
        }
        true
    }

    pub fn remove(&self, segment: &Arc<Segment>) {
        lock(&self.table).remove(segment);
    }

    /// Returns how many bytes segments hold, requests in flight included.
    pub fn bytes(&self) -> u64 {
        lock(&self.table).bytes
    }
}

impl Table {
    fn before(&self, blob: BlobId, offset: u64) -> Option<&Arc<Segment>> {
        let (&(found, _), segment) = self.map.range(..=(blob, offset)).next_back()?;
        (found == blob).then_some(segment)
    }

    fn insert(&mut self, blob: BlobId, range: Range<u64>, pattern: Pattern) -> Arc<Segment> {
        let segment = Arc::new(Segment {
            blob,
            range,
            pattern,
            state: Mutex::new(SegmentState::Queued),
            ended: Condvar::new(),
            used: AtomicU64::new(0),
            spent: AtomicBool::new(false),
        });
        self.bytes += segment.len();
        self.map
            .insert((blob, segment.range.start), Arc::clone(&segment));
        self.planned.push_back(Arc::downgrade(&segment));
        segment
    }

    /// Evicts segments until `len` more bytes fit: first spent ones, then the oldest. Skips
    /// segments in flight, because their bytes would be read in vain. Returns whether the bytes
    /// fit, or no segment is left.
    fn make_room(&mut self, len: u64, budget: u64, stats: &IoStats) -> bool {
        while self.bytes + len > budget {
            if let Some(segment) = self.spent.pop_front() {
                if let Some(segment) = segment.upgrade() {
                    self.remove(&segment);
                }
                continue;
            }
            let Some(oldest) = self.planned.pop_front() else {
                return self.bytes == 0;
            };
            let Some(oldest) = oldest.upgrade() else {
                continue;
            };
            if oldest.in_flight() {
                self.planned.push_front(Arc::downgrade(&oldest));
                return false;
            }
            if self.remove(&oldest) {
                let unused = oldest
                    .len()
                    .saturating_sub(oldest.used.load(Ordering::Relaxed));
                stats.add(Counter::ReadaheadWastedBytes, unused);
            }
        }
        self.forget_gone();
        true
    }

    /// Removes entries of segments that no longer exist from the queues, where they would pile up.
    fn forget_gone(&mut self) {
        let (map, bound) = (&self.map, 2 * self.map.len() + 64);
        let there = |segment: &Weak<Segment>, spent_too: bool| {
            segment.upgrade().is_some_and(|segment| {
                let found = map.get(&(segment.blob, segment.range.start));
                found.is_some_and(|found| Arc::ptr_eq(found, &segment))
                    && (spent_too || !segment.spent.load(Ordering::Relaxed))
            })
        };
        if self.planned.len() > bound {
            self.planned.retain(|segment| there(segment, false));
        }
        if self.spent.len() > bound {
            self.spent.retain(|segment| there(segment, true));
        }
    }

    fn remove(&mut self, segment: &Arc<Segment>) -> bool {
        let key = (segment.blob, segment.range.start);
        let same = self
            .map
            .get(&key)
            .is_some_and(|there| Arc::ptr_eq(there, segment));
        if same {
            self.map.remove(&key);
            self.bytes -= segment.len();
        }
        same
    }
}

/// Converts a part of a segment's range to positions in its buffer.
pub fn within(segment: &Segment, range: &Range<u64>) -> Range<usize> {
    let at = |offset: u64| forerun_io::usize_from(offset - segment.range.start);
    at(range.start)..at(range.end)
}

pub fn buffer_len(segment: &Segment) -> usize {
    forerun_io::usize_from(segment.len())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No holder of these locks leaves the data half changed when it panics.
    mutex.lock().unpoisoned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::buffer::BufferPool;

    const BLOB: BlobId = BlobId::IMAGE;

    fn fill(segment: &Arc<Segment>) {
        let buffers = BufferPool::new(0);
        segment
            .start()
            .unwrap()
            .finish(Arc::new(buffers.take(buffer_len(segment))));
    }

    fn ranges(segments: &[Arc<Segment>]) -> Vec<(u64, u64)> {
        segments
            .iter()
            .map(|segment| (segment.range.start, segment.range.end))
            .collect()
    }

    #[test]
    fn plans_only_what_is_missing() {
        let (segments, stats) = (Segments::new(1000), IoStats::default());
        assert_eq!(
            ranges(&segments.plan(BLOB, 100..200, 60, Pattern::Scattered, &stats)),
            [(100, 160), (160, 200)]
        );
        assert_eq!(
            ranges(&segments.plan(BLOB, 50..250, 1000, Pattern::Scattered, &stats)),
            [(50, 100), (200, 250)]
        );
        assert_eq!(
            ranges(&segments.plan(BLOB, 50..250, 1000, Pattern::Scattered, &stats)),
            []
        );
        assert_eq!(
            ranges(&segments.plan(BlobId(1), 50..60, 1000, Pattern::Scattered, &stats)),
            [(50, 60)]
        );
        assert_eq!(segments.bytes(), 210);
        assert_eq!(segments.next_start(BLOB, 101..300), Some(160));
        assert!(segments.find(BLOB, 250).is_none() && segments.find(BLOB, 249).is_some());
    }

    #[test]
    fn spent_segments_go_before_unread_ones() {
        let (segments, stats) = (Segments::new(300), IoStats::default());
        let first = segments.plan(BLOB, 0..300, 100, Pattern::Scattered, &stats);
        first.iter().for_each(fill);
        segments.used(&first[1], 100);
        segments.plan(BLOB, 300..400, 100, Pattern::Scattered, &stats);
        assert!(segments.find(BLOB, 100).is_none() && segments.find(BLOB, 0).is_some());
        assert_eq!(stats.get(Counter::ReadaheadWastedBytes), 0);
        segments.plan(BLOB, 400..500, 100, Pattern::Scattered, &stats);
        assert!(segments.find(BLOB, 0).is_none());
        assert_eq!(stats.get(Counter::ReadaheadWastedBytes), 100);
    }

    #[test]
    fn requests_in_flight_are_never_dropped() {
        let (segments, stats) = (Segments::new(200), IoStats::default());
        let first = segments.plan(BLOB, 0..200, 100, Pattern::Scattered, &stats);
        assert_eq!(first.len(), 2);
        assert!(
            segments
                .plan(BLOB, 200..300, 100, Pattern::Scattered, &stats)
                .is_empty()
        );
        fill(&first[0]);
        assert_eq!(
            segments
                .plan(BLOB, 200..300, 100, Pattern::Scattered, &stats)
                .len(),
            1
        );
    }

    #[test]
    fn an_abandoned_request_has_failed() {
        let (segments, stats) = (Segments::new(200), IoStats::default());
        let segment = segments
            .plan(BLOB, 0..100, 100, Pattern::Scattered, &stats)
            .remove(0);
        drop(segment.start().unwrap());
        assert!(matches!(segment.claim(), Claim::Failed));
        assert!(segment.start().is_none());
        segments.remove(&segment);
        assert_eq!(segments.bytes(), 0);
    }

    #[test]
    fn many_spent_segments_leave_nothing_behind() {
        let (segments, stats) = (Segments::new(1000), IoStats::default());
        for n in 0..10_000 {
            for segment in segments.plan(BLOB, n * 10..n * 10 + 10, 10, Pattern::Scattered, &stats)
            {
                fill(&segment);
                segments.used(&segment, 10);
            }
        }
        let table = lock(&segments.table);
        assert!(table.map.len() <= 100 && table.planned.len() <= 300 && table.spent.len() <= 300);
    }
}
