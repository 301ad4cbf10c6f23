//! The workers that answer requests, with separate queues for metadata and file data.
//!
//! The threads that take requests from the kernel answer them inline, without a queue. But a source
//! can be slow (a failing disk, a distant server), and then requests whose answers are in memory
//! would wait if no thread took them. Three rules prevent that:
//!
//! - Data requests leave two of these threads free, and metadata requests leave one. A request that
//!   finds no free thread goes to its queue's workers.
//! - If the image is slow ([`forerun::Reader::is_slow`]), a request is first tried with what is in
//!   memory, and goes to a worker only if that is not enough. So a request that needs no server
//!   never waits behind one that does, for metadata and data alike.
//! - Each queue has its own workers. They are started as needed, end when idle or when the mount
//!   has ended, and are limited in number. The kernel limits the queues: it has one request per
//!   waiting process, and a limit on background requests.
//!
//! A request given to a worker may be answered before the worker is done (`pending.rs`).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use forerun_io::{Unpoisoned, wait};
use forerun_sys::memory_limit::MemoryLimit;
use forerun_sys::threads;
use fuser::Errno;

use crate::guarded::{guarded, tell_of_panic};
use crate::pending::{Pending, Watch};

/// Maximum workers per queue if memory is not scarce.
const MAX_THREADS: usize = 64;
/// Memory per worker. Most wait for a source with empty buffers.
const THREAD: u64 = 512 << 10;
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// The kind of a request, which selects its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    Metadata,
    /// File data, and syncing it.
    Data,
}

/// Properties of a request that are known before it is answered.
#[derive(Clone, Copy, Debug)]
pub struct About {
    pub lane: Lane,
    /// The thread that waits for the answer; 0 if unknown.
    pub pid: u32,
    /// Whether to try without waiting first.
    pub is_slow: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    pub now: usize,
    pub metadata: u64,
    pub data: u64,
    pub threads: usize,
    /// Requests answered with an error because their reader was killed or the mount was ending.
    pub refused: u64,
}

#[derive(Clone)]
pub struct Workers {
    shared: Arc<WorkersShared>,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").finish_non_exhaustive()
    }
}

struct WorkersShared {
    /// Requests being answered inline; `inline_data` counts those for data.
    inline: AtomicUsize,
    inline_data: AtomicUsize,
    takers: usize,
    /// When each inline request began, in milliseconds since `start` plus 1; 0 is a free entry.
    begun: Vec<AtomicU64>,
    start: Instant,
    max_threads: usize,
    /// Workers hold only their queue, so that the queue can tell them when this value is dropped.
    metadata: Arc<Queue>,
    data: Arc<Queue>,
    watch: Arc<Watch>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<LaneState>,
    arrived: Condvar,
    /// Signals that a worker has become idle while [`Workers::drain`] waits.
    drained: Condvar,
    handed_over: AtomicU64,
}

#[derive(Default)]
struct LaneState {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// [`Workers::drain`] waits for all workers to be idle.
    draining: bool,
    /// No more jobs will come: workers end as soon as they are idle.
    closed: bool,
}

struct OnTheSpot<'s> {
    shared: &'s WorkersShared,
    lane: Lane,
    place: Option<usize>,
}

impl Workers {
    /// Creates the pool. `takers` is the number of threads that take requests from the kernel.
    pub fn new(takers: usize) -> Self {
        let shared = WorkersShared {
            inline: AtomicUsize::new(0),
            inline_data: AtomicUsize::new(0),
            takers,
            begun: (0..takers).map(|_| AtomicU64::new(0)).collect(),
            start: Instant::now(),
            max_threads: MemoryLimit::of_process().fitting(MAX_THREADS, THREAD),
            metadata: Arc::default(),
            data: Arc::default(),
            watch: Arc::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Runs `work` and passes its result to `answer`, now or later. `work` may run twice. A panic
    /// ends only this request: dropping `answer` drops the reply, which then sends an error.
    pub fn run<T: 'static>(
        &self,
        about: About,
        work: impl Fn() -> T + Send + 'static,
        answer: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        if about.is_slow {
            match catch_unwind(AssertUnwindSafe(|| wait::attempt(&work))) {
                Ok(Some(result)) => {
                    guarded(|| answer(Ok(result)));
                    return;
                }
                Ok(None) => {}
                Err(_panic) => return tell_of_panic(),
            }
        } else if let Some(_place) = self.shared.enter(about.lane) {
            guarded(|| answer(Ok(work())));
            return;
        }
        let pending = Pending::new(about.pid, work, answer);
        self.shared.watch.add(Arc::clone(&pending));
        self.hand_over(about.lane, Box::new(move || pending.work()));
    }

    /// Runs `job` exactly once, on this thread or on a worker. The job is never cancelled.
    pub fn run_once(&self, lane: Lane, job: impl FnOnce() + Send + 'static) {
        match self.shared.enter(lane) {
            Some(_place) => {
                guarded(job);
            }
            None => self.hand_over(lane, Box::new(job)),
        }
    }

    /// Does the same as [`run_once`](Self::run_once) for a job that needs bytes of the request,
    /// which are copied only for a worker.
    pub fn run_with(&self, lane: Lane, bytes: &[u8], job: impl FnOnce(&[u8]) + Send + 'static) {
        match self.shared.enter(lane) {
            Some(_place) => {
                guarded(|| job(bytes));
            }
            None => {
                let bytes = bytes.to_vec();
                self.hand_over(lane, Box::new(move || job(&bytes)));
            }
        }
    }

    /// Always gives `job` to a worker: for jobs that may wait and cannot be tried before.
    pub fn run_aside(&self, lane: Lane, job: impl FnOnce() + Send + 'static) {
        self.hand_over(lane, Box::new(job));
    }

    pub fn drain(&self) {
        self.shared.metadata.drain();
        self.shared.data.drain();
    }

    /// Fails, from now on, requests that wait longer than a second for the source.
    pub fn end(&self) {
        self.shared.watch.end();
    }

    /// Returns whether an inline request has been running for `patience`.
    pub fn is_stuck(&self, patience: Duration) -> bool {
        let now = self.shared.now();
        let patience = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self.shared.begun.iter().any(|begun| {
            let begun = begun.load(Ordering::Acquire);
            begun != 0 && now.saturating_sub(begun) >= patience
        })
    }

    pub fn waiting(&self) -> Waiting {
        let shared = &self.shared;
        Waiting {
            now: shared.watch.waiting(),
            metadata: shared.metadata.handed_over.load(Ordering::Relaxed),
            data: shared.data.handed_over.load(Ordering::Relaxed),
            threads: shared.metadata.lock().threads + shared.data.lock().threads,
            refused: shared.watch.refused(),
        }
    }

    fn hand_over(&self, lane: Lane, job: Job) {
        let queue = self.shared.queue(lane);
        queue.handed_over.fetch_add(1, Ordering::Relaxed);
        let mut state = queue.lock();
        if state.idle <= state.jobs.len() && state.threads < self.shared.max_threads {
            let own = Arc::clone(queue);
            let name = match lane {
                Lane::Metadata => "forerun-fuse-meta",
                Lane::Data => "forerun-fuse-data",
            };
            match threads::spawn(name, move || own.work()) {
                Ok(_) => state.threads += 1,
                // If no thread can be started, the existing workers run the job, or this thread if
                // there are none.
                Err(_) if state.threads > 0 => {}
                Err(_) => {
                    drop(state);
                    guarded(job);
                    return;
                }
            }
        }
        state.jobs.push_back(job);
        drop(state);
        queue.arrived.notify_one();
    }
}

impl WorkersShared {
    const fn queue(&self, lane: Lane) -> &Arc<Queue> {
        match lane {
            Lane::Metadata => &self.metadata,
            Lane::Data => &self.data,
        }
    }

    fn now(&self) -> u64 {
        let elapsed = u64::try_from(self.start.elapsed().as_millis());
        elapsed.unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Begins an inline request, if the queue's limit leaves a thread for it.
    fn enter(&self, lane: Lane) -> Option<OnTheSpot<'_>> {
        let all = self.inline.fetch_add(1, Ordering::AcqRel);
        let is_free = all < self.takers.saturating_sub(1)
            && match lane {
                Lane::Metadata => true,
                Lane::Data => {
                    let data = self.inline_data.fetch_add(1, Ordering::AcqRel);
                    let is_free = data < self.takers.saturating_sub(2);
                    if !is_free {
                        self.inline_data.fetch_sub(1, Ordering::AcqRel);
                    }
                    is_free
                }
            };
        if !is_free {
            self.inline.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        let now = self.now();
        let place = self.begun.iter().position(|begun| {
            let taken = begun.compare_exchange(0, now, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        });
        Some(OnTheSpot {
            shared: self,
            lane,
            place,
        })
    }
}

impl Drop for WorkersShared {
    fn drop(&mut self) {
        self.metadata.close();
        self.data.close();
        self.watch.close();
    }
}

impl Drop for OnTheSpot<'_> {
    fn drop(&mut self) {
        let begun = self.place.and_then(|place| self.shared.begun.get(place));
        if let Some(begun) = begun {
            begun.store(0, Ordering::Release);
        }
        if self.lane == Lane::Data {
            self.shared.inline_data.fetch_sub(1, Ordering::AcqRel);
        }
        self.shared.inline.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unpoisoned()
    }

    fn drain(&self) {
        let mut state = self.lock();
        state.draining = true;
        let busy = |state: &mut LaneState| !state.jobs.is_empty() || state.idle < state.threads;
        let waited = self.drained.wait_while(state, busy);
        waited.unpoisoned().draining = false;
    }

    /// Makes workers end once the queue is empty.
    fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                guarded(job);
                state = self.lock();
                continue;
            }
            state.idle += 1;
            if state.draining {
                self.drained.notify_all();
            }
            let idle = |state: &mut LaneState| state.jobs.is_empty() && !state.closed;
            let waited = self.arrived.wait_timeout_while(state, IDLE, idle);
            state = waited.unpoisoned().0;
            state.idle -= 1;
            if state.jobs.is_empty() {
                state.threads -= 1;
                self.drained.notify_all();
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
