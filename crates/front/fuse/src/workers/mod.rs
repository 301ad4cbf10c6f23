//! The threads that answer requests, in two lanes: metadata and file data.
//!
//! The threads that take requests from the kernel answer them on the spot: no hand-over, no queue.
//! But a source can be slow (a failing disk, a server far away), and a request that no thread takes
//! waits although its answer is in memory. Three rules prevent that:
//!
//! - Data leaves two of these threads free and metadata leaves one. A request that finds no place is
//!   handed over to the threads of its lane.
//! - Where the image says that it is slow ([`forerun::Reader::is_slow`]), a request is first answered
//!   from what is here, and handed over only if that does not suffice. So a request that needs no
//!   server is never queued behind one that does, metadata or data.
//! - Each lane has its own queue and its own threads. These are started as needed, end when idle and
//!   or when the mount has ended, and are bounded in number. The kernel bounds the queues: it has one request per
//!   waiting process, and a limit for those in the background.
//!
//! A request that was handed over may be answered before its thread is done (`pending.rs`).

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

/// Most threads of a lane, where memory is not scarce.
const MAX_THREADS: usize = 64;
/// Memory that one of them may take. Most wait for a source, with nothing in their buffers yet.
const THREAD: u64 = 512 << 10;
/// How long one of them waits for more work.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// The kind of a request, which decides the threads that answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    Metadata,
    /// Bytes of files, and that they be durable.
    Data,
}

/// Properties of a request that are known before it is answered.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Whose threads answer it.
    pub lane: Lane,
    /// The thread that waits for the answer; 0 where the kernel does not say.
    pub pid: u32,
    /// Whether to try without a wait first.
    pub is_slow: bool,
}

/// Requests that wait for the source, and what became of others that did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Requests that wait now.
    pub now: usize,
    /// Requests for metadata that were handed over so far.
    pub metadata: u64,
    /// Requests for data that were handed over so far.
    pub data: u64,
    /// Threads that work on what was handed over, or are idle.
    pub threads: usize,
    /// Requests that were answered with an error since their reader was killed or the mount was to
    /// end.
    pub refused: u64,
}

/// The threads that answer.
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
    /// Requests being answered on the spot, and those of them that are for data.
    inline: AtomicUsize,
    inline_data: AtomicUsize,
    takers: usize,
    /// When each of them began, in milliseconds from `start`, and one; 0 is a free place.
    begun: Vec<AtomicU64>,
    start: Instant,
    max_threads: usize,
    /// Threads hold their queue and nothing else, so that they can be told that this is gone.
    metadata: Arc<Queue>,
    data: Arc<Queue>,
    watch: Arc<Watch>,
}

/// The queue and the threads of a lane.
#[derive(Default)]
struct Queue {
    state: Mutex<LaneState>,
    arrived: Condvar,
    /// A thread has become idle while [`Workers::drain`] waits.
    drained: Condvar,
    handed_over: AtomicU64,
}

#[derive(Default)]
struct LaneState {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// [`Workers::drain`] waits for all threads to be idle.
    draining: bool,
    /// No more jobs come: threads end as soon as they are idle.
    closed: bool,
}

/// A request that is being answered by the thread that took it.
struct OnTheSpot<'s> {
    shared: &'s WorkersShared,
    lane: Lane,
    place: Option<usize>,
}

impl Workers {
    /// Creates the pool of worker threads. `takers` is the number of threads that take requests from the kernel.
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

    /// Runs `work` for the answer and passes that to `answer`, now or later. `work` may run twice. A
    /// panic ends this request and nothing else: where `answer` is dropped, the reply that it holds
    /// answers with an error.
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

    /// Runs `job` exactly once, on this thread or on one of its lane, and lets it end in any case.
    pub fn run_once(&self, lane: Lane, job: impl FnOnce() + Send + 'static) {
        match self.shared.enter(lane) {
            Some(_place) => {
                guarded(job);
            }
            None => self.hand_over(lane, Box::new(job)),
        }
    }

    /// Runs `job` as [`run_once`](Self::run_once) does, for a job that needs bytes of the request. They
    /// are only copied where the job is handed over.
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

    /// Hands `job` to a thread of its lane in any case: for jobs that may wait and cannot be tried
    /// before.
    pub fn run_aside(&self, lane: Lane, job: impl FnOnce() + Send + 'static) {
        self.hand_over(lane, Box::new(job));
    }

    /// Waits until every job that was handed over has ended.
    pub fn drain(&self) {
        self.shared.metadata.drain();
        self.shared.data.drain();
    }

    /// Fails the requests that wait for the source longer than a second from now on.
    pub fn end(&self) {
        self.shared.watch.end();
    }

    /// Returns whether a thread that takes requests has been answering one for so long.
    pub fn is_stuck(&self, patience: Duration) -> bool {
        let now = self.shared.now();
        let patience = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self.shared.begun.iter().any(|begun| {
            let begun = begun.load(Ordering::Acquire);
            begun != 0 && now.saturating_sub(begun) >= patience
        })
    }

    /// Counts the requests that wait, or have waited, for the source.
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
                // If no thread can be started, the existing ones must do; if there are none, this one.
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

    /// Takes a place among the threads that take requests, if there is one left for the lane.
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

    /// Has threads end once they have done what was handed over.
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
