//! The queue of wanted chunks: their order, and which of them one request fetches.
//!
//! This is pure bookkeeping, without time and network, so that tests can check order and merging. A
//! chunk has a slot from the moment a reader wants it, or a request for it starts, until it arrives
//! or fails. Readahead and background chunks are stored as ranges.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use forerun_io::u64_from;

use crate::fetch::scheduler::pending::{Pending, settle};
use crate::fetch::tuning::{AHEAD_BYTES, AHEAD_BYTES_QUEUED, BACKGROUND_BYTES, DEMAND_BYTES};
use crate::{RemoteError, Result};

/// Stream number of hints, which belong to no reader.
pub const HINTED: u64 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Demand,
    /// Readahead: a reader will probably need them.
    Ahead,
    /// An access list names them.
    Listed,
    /// The whole image is fetched.
    Background,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub chunks: Range<u64>,
    pub class: Class,
}

#[derive(Debug, Default)]
struct QueueSlot {
    flying: bool,
    pending: Option<Arc<Pending>>,
}

#[derive(Debug)]
struct Ahead {
    stream: u64,
    chunks: Range<u64>,
}

/// The state of the image, as the queue needs it.
pub trait View {
    /// Returns the runs of `chunks` that are known to be present.
    fn present(&self, chunks: Range<u64>) -> Vec<Range<u64>>;
    /// Returns the chunk before which a request that starts at `chunk` must end.
    fn part_end(&self, chunk: u64) -> u64;
}

#[derive(Debug)]
pub struct Queue {
    chunk_len: u64,
    requests: usize,
    slots: HashMap<u64, QueueSlot>,
    demand: VecDeque<u64>,
    ahead: VecDeque<Ahead>,
    listed: VecDeque<Range<u64>>,
    background: VecDeque<Range<u64>>,
    in_flight: usize,
    /// Whether the whole image is fetched, so that failed chunks are queued again.
    all: bool,
}

/// Lengths of the queues in chunks, and the number of requests in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    pub demand: u64,
    pub ahead: u64,
    pub background: u64,
    pub in_flight: u64,
}

impl Queue {
    /// Creates an empty queue. Readahead and background requests start while fewer than `requests`
    /// are in flight; requests with waiting readers start while fewer than twice as many are.
    pub fn new(chunk_len: u32, requests: usize) -> Self {
        Self {
            chunk_len: u64::from(chunk_len).max(1),
            requests: requests.max(1),
            slots: HashMap::new(),
            demand: VecDeque::new(),
            ahead: VecDeque::new(),
            listed: VecDeque::new(),
            background: VecDeque::new(),
            in_flight: 0,
            all: false,
        }
    }

    /// Queues `chunk` for a reader, which waits for the returned handle.
    pub fn demand(&mut self, chunk: u64) -> Arc<Pending> {
        let slot = self.slots.entry(chunk).or_insert_with(|| {
            self.demand.push_back(chunk);
            QueueSlot::default()
        });
        Arc::clone(slot.pending.get_or_insert_default())
    }

    pub fn ahead(&mut self, stream: u64, chunks: Range<u64>) {
        let most = AHEAD_BYTES_QUEUED / self.chunk_len;
        let chunks = chunks.start..chunks.end.min(chunks.start + most);
        if chunks.is_empty() {
            return;
        }
        self.ahead.push_back(Ahead { stream, chunks });
        while total(self.ahead.iter().map(|ahead| &ahead.chunks)) > most && self.ahead.len() > 1 {
            self.ahead.pop_front();
        }
    }

    /// Drops the queued readahead of `stream`.
    pub fn cancel(&mut self, stream: u64) {
        self.ahead.retain(|ahead| ahead.stream != stream);
    }

    pub fn listed(&mut self, runs: impl IntoIterator<Item = Range<u64>>) {
        self.listed.extend(runs);
    }

    pub fn background(&mut self, chunks: Range<u64>) {
        self.all = true;
        self.background.push_back(chunks);
    }

    /// Returns the next request to start, or `None` if none may start now.
    pub fn next(&mut self, view: &dyn View) -> Option<Job> {
        let job = self.next_demand(view).or_else(|| self.next_other(view))?;
        for chunk in job.chunks.clone() {
            self.slots.entry(chunk).or_default().flying = true;
        }
        self.in_flight += 1;
        Some(job)
    }

    fn next_demand(&mut self, view: &dyn View) -> Option<Job> {
        if self.in_flight >= self.requests.saturating_mul(2) {
            return None;
        }
        loop {
            let first = self.demand.pop_front()?;
            if self.slots.get(&first).is_none_or(|slot| slot.flying) {
                continue;
            }
            if !view.present(first..first + 1).is_empty() {
                settle(
                    self.slots.remove(&first).and_then(|slot| slot.pending),
                    Ok(()),
                );
                continue;
            }
            let wanted = |queue: &Self, chunk: u64| {
                queue.slots.contains_key(&chunk)
                    || queue
                        .ahead
                        .iter()
                        .any(|ahead| ahead.chunks.contains(&chunk))
            };
            let limit = first + (DEMAND_BYTES / self.chunk_len).max(1);
            let chunks = self.run(first, limit, view, wanted);
            return Some(Job {
                chunks,
                class: Class::Demand,
            });
        }
    }

    fn next_other(&mut self, view: &dyn View) -> Option<Job> {
        if self.in_flight >= self.requests {
            return None;
        }
        while let Some(ahead) = self.ahead.pop_front() {
            let (job, rest) = self.cut(ahead.chunks, AHEAD_BYTES, view, Class::Ahead);
            if !rest.is_empty() {
                let (stream, chunks) = (ahead.stream, rest);
                self.ahead.push_front(Ahead { stream, chunks });
            }
            if job.is_some() {
                return job;
            }
        }
        while let Some(chunks) = self.listed.pop_front() {
            let (job, rest) = self.cut(chunks, BACKGROUND_BYTES, view, Class::Listed);
            if !rest.is_empty() {
                self.listed.push_front(rest);
            }
            if job.is_some() {
                return job;
            }
        }
        // Background requests leave bandwidth for chunks that a reader may request.
        if self.in_flight > self.requests / 2 {
            return None;
        }
        while let Some(chunks) = self.background.pop_front() {
            let (job, rest) = self.cut(chunks, BACKGROUND_BYTES, view, Class::Background);
            if !rest.is_empty() {
                self.background.push_front(rest);
            }
            if job.is_some() {
                return job;
            }
        }
        None
    }

    /// Removes from `chunks` the first run that is neither present nor in flight. Returns the run
    /// and the remaining chunks.
    fn cut(
        &self,
        chunks: Range<u64>,
        bytes: u64,
        view: &dyn View,
        class: Class,
    ) -> (Option<Job>, Range<u64>) {
        /// Number of chunks examined in one step.
        const STEP: u64 = 4096;
        let mut at = chunks.start;
        while at < chunks.end {
            let step = (at + STEP).min(chunks.end);
            let here = view.present(at..step);
            let flying = |chunk: &u64| self.slots.get(chunk).is_some_and(|slot| slot.flying);
            let present = |chunk: &u64| here.iter().any(|run| run.contains(chunk));
            // Present runs are skipped as a whole.
            while at < step {
                if let Some(run) = here.iter().find(|run| run.contains(&at)) {
                    at = run.end;
                } else if flying(&at) || present(&at) {
                    at += 1;
                } else {
                    break;
                }
            }
            if at >= step {
                continue;
            }
            let most = (bytes / self.chunk_len).max(1);
            let limit = (at + most).min(chunks.end);
            let run = self.run(at, limit, view, |_, _| true);
            let rest = run.end..chunks.end;
            return (Some(Job { chunks: run, class }), rest);
        }
        (None, chunks.end..chunks.end)
    }

    /// Returns the run of chunks from `first` on that are wanted, missing and not in flight, up to
    /// `limit` and the end of the part. Does not check `first` itself.
    fn run(
        &self,
        first: u64,
        limit: u64,
        view: &dyn View,
        wanted: impl Fn(&Self, u64) -> bool,
    ) -> Range<u64> {
        let next = first + 1;
        let limit = limit.min(view.part_end(first)).max(next);
        let here = view.present(next..limit);
        let limit = here.first().map_or(limit, |run| run.start.min(limit));
        let flying = |chunk: &u64| self.slots.get(chunk).is_some_and(|slot| slot.flying);
        let end = (next..limit).find(|chunk| flying(chunk) || !wanted(self, *chunk));
        first..end.unwrap_or(limit)
    }

    pub fn landed(&mut self, chunk: u64) {
        settle(
            self.slots.remove(&chunk).and_then(|slot| slot.pending),
            Ok(()),
        );
    }

    /// Records that `chunks` are no longer in flight. Readers of chunks that did not arrive get
    /// `error`. Without an error, chunks with waiting readers are queued again.
    pub fn failed(&mut self, chunks: Range<u64>, error: Option<&RemoteError>) {
        for chunk in chunks {
            let Some(slot) = self.slots.get_mut(&chunk).filter(|slot| slot.flying) else {
                continue;
            };
            if let (None, Some(_)) = (error, &slot.pending) {
                slot.flying = false;
                self.demand.push_front(chunk);
                continue;
            }
            let outcome: Result<()> = error.map_or(Ok(()), |error| Err(error.clone()));
            settle(
                self.slots.remove(&chunk).and_then(|slot| slot.pending),
                outcome,
            );
        }
    }

    /// Returns whether failed chunks of a request of `class` are queued again.
    pub fn keeps(&self, class: Class) -> bool {
        self.all || class == Class::Listed
    }

    /// Queues failed chunks again, after all others.
    pub fn again(&mut self, class: Class, chunks: Range<u64>) {
        match class {
            Class::Listed if !self.all => self.listed.push_back(chunks),
            _ => self.background.push_back(chunks),
        }
    }

    pub const fn ended(&mut self) {
        self.in_flight -= 1;
    }

    pub fn close(&mut self, error: &RemoteError) {
        for (_, slot) in self.slots.drain() {
            settle(slot.pending, Err(error.clone()));
        }
        self.demand.clear();
        self.ahead.clear();
        self.listed.clear();
        self.background.clear();
    }

    pub fn depth(&self) -> Depth {
        Depth {
            demand: u64_from(self.demand.len()),
            ahead: total(self.ahead.iter().map(|ahead| &ahead.chunks)),
            background: total(self.listed.iter().chain(&self.background)),
            in_flight: u64_from(self.in_flight),
        }
    }
}

fn total<'a>(runs: impl Iterator<Item = &'a Range<u64>>) -> u64 {
    runs.map(|run| run.end - run.start).sum()
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
