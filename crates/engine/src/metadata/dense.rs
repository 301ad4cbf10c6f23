//! Metadata that is stored apart from the data: read in large requests from the first access on.
//!
//! If the driver can name the parts of the image that are metadata, a miss also reads the
//! surroundings of the block, because a walk wants them next. The unit is a chunk of 128 KiB: on
//! the disks where this was measured, a request of that size takes little longer than one of 4 KiB,
//! and a directory with the inodes of its files seldom needs more than two chunks. For sequential
//! reads, requests double up to 1 MiB.
//!
//! Each chunk is read once, however many threads ask for it: a thread that needs a chunk in flight
//! waits for it, and no request covers chunks that are cached. The least recently used chunk is
//! evicted first, found by linear search because there are few.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};

use forerun_io::{Unpoisoned, u64_from, usize_from, wait};

use crate::tuning::{DENSE_CHUNKS, DENSE_GAP, DENSE_STEP, METADATA_CHUNK};
use crate::waiting::wait_slice;

/// A cache for the parts of an image that are metadata.
pub struct Dense {
    /// Sorted; no two are adjacent.
    ranges: Vec<Range<u64>>,
    max_step: u64,
    max_ahead: u64,
    most: usize,
    clock: AtomicU64,
    chunks: RwLock<HashMap<u64, Kept>>,
    state: Mutex<DenseState>,
    landed: Condvar,
}

struct Kept {
    used: AtomicU64,
    bytes: Arc<[u8]>,
}

#[derive(Default)]
struct DenseState {
    flying: Vec<Range<u64>>,
    /// The end of the last request, and the step, which doubles for each sequential request.
    end: u64,
    step: u64,
}

pub type Load<'l> = &'l dyn Fn(Range<u64>) -> Result<Vec<u8>, Arc<io::Error>>;

/// The offset of a chunk in the image, and its bytes.
pub type Found = (u64, Arc<[u8]>);

impl Dense {
    /// Creates a cache of at most `budget` bytes for `ranges` of a source of `len` bytes. Requests
    /// are at most `max_request` bytes long, but at least a chunk.
    pub fn new(ranges: Vec<Range<u64>>, len: u64, budget: u64, max_request: u64) -> Self {
        let most = usize_from(budget / METADATA_CHUNK).max(DENSE_CHUNKS);
        Self {
            ranges: disjoint(ranges, len),
            // A request takes at most a quarter of the cache.
            max_step: DENSE_STEP
                .min(max_request)
                .min(budget / 4)
                .max(METADATA_CHUNK),
            max_ahead: max_request.min(budget / 4).max(METADATA_CHUNK),
            most,
            clock: AtomicU64::new(0),
            chunks: RwLock::default(),
            state: Mutex::default(),
            landed: Condvar::new(),
        }
    }

    /// Returns the chunk around `offset`, or `None` if `offset` is not metadata.
    fn chunk(&self, offset: u64) -> Option<Range<u64>> {
        let after = self.ranges.partition_point(|range| range.start <= offset);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        if offset >= range.end {
            return None;
        }
        let start = offset - offset % METADATA_CHUNK;
        Some(start.max(range.start)..(start + METADATA_CHUNK).min(range.end))
    }

    /// Returns the chunk around `offset`, read with `load` if it is not cached. Returns `None` if
    /// `offset` is in none of the ranges.
    ///
    /// # Errors
    /// The error of `load` for a request of this call. A call that waited for the failed request of
    /// another thread makes its own request. Also fails if this thread may not wait.
    pub fn get(&self, offset: u64, load: Load<'_>) -> Option<Result<Found, Arc<io::Error>>> {
        let chunk = self.chunk(offset)?;
        Some(self.get_chunk(&chunk, METADATA_CHUNK, load))
    }

    /// Gets a chunk as [`get`](Self::get) does, with a request of at least `step` bytes, or up to
    /// the end of the range.
    fn get_chunk(
        &self,
        chunk: &Range<u64>,
        step: u64,
        load: Load<'_>,
    ) -> Result<Found, Arc<io::Error>> {
        if let Some(bytes) = self.kept(chunk.start) {
            return Ok((chunk.start, bytes));
        }
        let request = match self.claim(chunk, step)? {
            DenseClaim::There(bytes) => return Ok((chunk.start, bytes)),
            DenseClaim::Ours(request) => request,
        };
        let flight = Flight {
            dense: self,
            request,
        };
        let loaded = load(flight.request.clone()).map(|bytes| self.keep(&flight.request, &bytes));
        drop(flight);
        // Take the chunk from `loaded`: other threads may have evicted it already.
        loaded.map(|first| (chunk.start, first))
    }

    /// Reads all ranges ahead, but of each at most half the capacity of the cache.
    pub fn prefetch(&self, load: Load<'_>) -> Result<(), Arc<io::Error>> {
        let half = METADATA_CHUNK * u64_from(self.most / 2);
        for range in &self.ranges {
            let end = range.end.min(range.start + half);
            let mut at = range.start;
            while at < end {
                let Some(chunk) = self.chunk(at) else { break };
                self.get_chunk(&chunk, self.max_ahead, load)?;
                at = chunk.end;
            }
        }
        Ok(())
    }

    fn kept(&self, start: u64) -> Option<Arc<[u8]>> {
        let chunks = self.chunks.read().unpoisoned();
        let kept = chunks.get(&start)?;
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        kept.used.store(now, Ordering::Relaxed);
        Some(Arc::clone(&kept.bytes))
    }

    /// Waits while another thread reads the chunk; otherwise claims it and the following chunks.
    /// Fails with the error of [`wait::allowed`] if this thread may not wait.
    fn claim(&self, chunk: &Range<u64>, at_least: u64) -> Result<DenseClaim, Arc<io::Error>> {
        let mut state = self.state.lock().unpoisoned();
        loop {
            if let Some(bytes) = self.kept(chunk.start) {
                return Ok(DenseClaim::There(bytes));
            }
            let flying = |flying: &Range<u64>| flying.contains(&chunk.start);
            if !state.flying.iter().any(flying) {
                break;
            }
            if let Err(error) = wait::allowed() {
                return Err(Arc::new(error));
            }
            state = wait_slice(&self.landed, state);
        }
        let forward =
            chunk.start >= state.end && chunk.start - state.end <= DENSE_GAP && state.end > 0;
        state.step = if forward {
            (state.step * 2).min(self.max_step)
        } else {
            METADATA_CHUNK
        };
        let step = state.step.max(at_least);
        let mut end = chunk.end;
        while end - chunk.start < step {
            let next = match self.chunk(end) {
                Some(next) if next.start == end => next,
                _ => break,
            };
            let chunks = self.chunks.read().unpoisoned();
            let there = chunks.contains_key(&next.start)
                || state.flying.iter().any(|f| f.contains(&next.start));
            if there {
                break;
            }
            end = next.end;
        }
        state.end = end;
        state.flying.push(chunk.start..end);
        Ok(DenseClaim::Ours(chunk.start..end))
    }

    fn keep(&self, request: &Range<u64>, bytes: &[u8]) -> Arc<[u8]> {
        let mut chunks = self.chunks.write().unpoisoned();
        let mut first = None;
        let mut at = request.start;
        while at < request.end {
            let end = (at - at % METADATA_CHUNK + METADATA_CHUNK).min(request.end);
            let from = usize_from(at - request.start);
            let to = usize_from(end - request.start);
            let part: Arc<[u8]> = bytes[from..to].into();
            first.get_or_insert_with(|| Arc::clone(&part));
            let used = AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed));
            chunks.insert(at, Kept { used, bytes: part });
            at = end;
        }
        while chunks.len() > self.most {
            let oldest = chunks
                .iter()
                .min_by_key(|(_, kept)| kept.used.load(Ordering::Relaxed))
                .map(|(&start, _)| start);
            let Some(oldest) = oldest else { break };
            chunks.remove(&oldest);
        }
        first.unwrap_or_default()
    }
}

enum DenseClaim {
    There(Arc<[u8]>),
    Ours(Range<u64>),
}

/// A guard for a request in flight, which ends when the guard is dropped.
struct Flight<'d> {
    dense: &'d Dense,
    request: Range<u64>,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let state = self.dense.state.lock();
        let mut state = state.unpoisoned();
        state.flying.retain(|flying| *flying != self.request);
        drop(state);
        self.dense.landed.notify_all();
    }
}

fn disjoint(mut ranges: Vec<Range<u64>>, len: u64) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let range = range.start..range.end.min(len);
        match out.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    const LEN: u64 = 64 << 20;

    fn dense(budget: u64) -> Dense {
        Dense::new(std::iter::once(0..LEN).collect(), LEN, budget, 4 << 20)
    }

    /// Returns a loader that records its requests in `log` and fills each chunk with its number.
    fn loader(
        log: &Mutex<Vec<Range<u64>>>,
    ) -> impl Fn(Range<u64>) -> Result<Vec<u8>, Arc<io::Error>> {
        |request| {
            log.lock().unwrap().push(request.clone());
            Ok(request
                .map(|at| u8::try_from(at / METADATA_CHUNK % 251).unwrap())
                .collect())
        }
    }

    #[test]
    fn chunks_end_with_their_range() {
        let ranges = vec![
            1000..METADATA_CHUNK + 5,
            METADATA_CHUNK * 4..METADATA_CHUNK * 4 + 7,
        ];
        let dense = Dense::new(ranges, LEN, 8 << 20, 4 << 20);
        let table = [
            (999, None),
            (1000, Some(1000..METADATA_CHUNK)),
            (METADATA_CHUNK, Some(METADATA_CHUNK..METADATA_CHUNK + 5)),
            (METADATA_CHUNK + 5, None),
            (
                METADATA_CHUNK * 4 + 6,
                Some(METADATA_CHUNK * 4..METADATA_CHUNK * 4 + 7),
            ),
            (u64::MAX, None),
        ];
        for (offset, chunk) in table {
            assert_eq!(dense.chunk(offset), chunk, "{offset}");
        }
    }

    #[test]
    fn a_walk_reads_each_byte_once_in_growing_requests() {
        let dense = dense(4 << 20);
        let log = Mutex::default();
        for at in (0..LEN).step_by(4096) {
            let (start, bytes) = dense.get(at, &loader(&log)).unwrap().unwrap();
            let inside = usize_from(at - start);
            assert_eq!(u64::from(bytes[inside]), at / METADATA_CHUNK % 251);
        }
        let log = log.into_inner().unwrap();
        assert!(log.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!(log[0], 0..METADATA_CHUNK);
        assert_eq!(log.last().unwrap().end, LEN);
        let mean = LEN / u64::try_from(log.len()).unwrap();
        assert!(mean > 512 << 10, "{mean}");
    }

    #[test]
    fn many_threads_read_a_chunk_once() {
        let dense = dense(64 << 20);
        let (log, barrier) = (Mutex::default(), Barrier::new(8));
        std::thread::scope(|scope| {
            for n in 0..8_u64 {
                let (dense, log, barrier) = (&dense, &log, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for k in 0..LEN / METADATA_CHUNK {
                        let at = (k * (2 * n + 1)) % (LEN / METADATA_CHUNK) * METADATA_CHUNK;
                        dense.get(at, &loader(log)).unwrap().unwrap();
                    }
                });
            }
        });
        let log = log.into_inner().unwrap();
        let read: u64 = log.iter().map(|request| request.end - request.start).sum();
        assert_eq!(read, LEN);
    }

    #[test]
    fn a_failed_request_lands_and_the_next_tries_again() {
        let dense = dense(8 << 20);
        let fail = |_| Err(Arc::new(io::Error::other("no")));
        assert!(dense.get(0, &fail).unwrap().is_err());
        let log = Mutex::default();
        assert!(dense.get(0, &loader(&log)).unwrap().is_ok());
    }

    #[test]
    fn what_is_kept_is_bounded_and_goes_by_last_use() {
        let dense = dense(1 << 20);
        let log = Mutex::default();
        for k in 0..20 {
            dense.get(0, &loader(&log)).unwrap().unwrap();
            dense
                .get(k * 3 % 20 * (2 * METADATA_CHUNK), &loader(&log))
                .unwrap()
                .unwrap();
            assert!(dense.chunks.read().unwrap().len() <= 8);
        }
        let first = log
            .into_inner()
            .unwrap()
            .iter()
            .filter(|r| r.start == 0)
            .count();
        assert_eq!(first, 1, "in use all the time");
    }

    #[test]
    fn ranges_are_put_in_order() {
        let ranges = vec![5..7, 0..2, 2..4, 9..9, 6..8, LEN + 1..LEN + 2];
        assert_eq!(disjoint(ranges, LEN), [0..4, 5..8]);
    }
}
