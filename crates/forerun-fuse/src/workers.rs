//! Who answers a request.
//!
//! The threads that take requests from the kernel answer them on the spot: no hand-over, no queue.
//! But a source can be slow (a failing disk, a server far away), and when all of these threads wait
//! for it, nobody takes the request that could be answered at once. So one of them is always kept
//! free: when the others are busy, it hands what it takes to a thread of its own. Those are started
//! as needed, end when idle, and are bounded in number; the queue before them is bounded by the
//! kernel, which has one request per waiting process and a limit for those in the background.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use forerun::MemoryLimit;

/// Most threads besides those that take requests, where memory is not scarce.
const MAX_THREADS: usize = 64;
/// Memory that one of them may take. Most wait for a source, with nothing in their buffers yet.
const THREAD: u64 = 512 << 10;
/// How long one of them waits for more work.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// The threads that answer.
#[derive(Clone)]
pub struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    /// Requests being answered on the spot.
    inline: AtomicUsize,
    max_inline: usize,
    max_threads: usize,
    queue: Mutex<Queue>,
    arrived: Condvar,
    /// A thread has become idle while [`Workers::drain`] waits.
    drained: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// [`Workers::drain`] waits for all threads to be idle.
    draining: bool,
}

impl Workers {
    /// For `takers` threads that take requests from the kernel.
    pub fn new(takers: usize) -> Self {
        let shared = Shared {
            inline: AtomicUsize::new(0),
            max_inline: takers.saturating_sub(1),
            max_threads: MemoryLimit::of_process().fitting(MAX_THREADS, THREAD),
            queue: Mutex::default(),
            arrived: Condvar::new(),
            drained: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Does `job` now or soon. A panic ends the job and nothing else: the reply that the job holds
    /// is dropped, which answers the request with an error.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        let busy = self.shared.inline.fetch_add(1, Ordering::AcqRel);
        if busy < self.shared.max_inline {
            guarded(job);
            self.shared.inline.fetch_sub(1, Ordering::AcqRel);
        } else {
            self.shared.inline.fetch_sub(1, Ordering::AcqRel);
            self.hand_over(Box::new(job));
        }
    }

    /// As [`run`](Self::run), for a job that needs bytes of the request: they are only copied where
    /// the job is handed over.
    pub fn run_with(&self, bytes: &[u8], job: impl FnOnce(&[u8]) + Send + 'static) {
        let busy = self.shared.inline.fetch_add(1, Ordering::AcqRel);
        if busy < self.shared.max_inline {
            guarded(|| job(bytes));
            self.shared.inline.fetch_sub(1, Ordering::AcqRel);
        } else {
            self.shared.inline.fetch_sub(1, Ordering::AcqRel);
            let bytes = bytes.to_vec();
            self.hand_over(Box::new(move || job(&bytes)));
        }
    }

    /// Waits until every job that was handed over has ended.
    pub fn drain(&self) {
        let mut queue = self.shared.lock();
        queue.draining = true;
        let busy = |queue: &mut Queue| !queue.jobs.is_empty() || queue.idle < queue.threads;
        let waited = self.shared.drained.wait_while(queue, busy);
        waited.unwrap_or_else(PoisonError::into_inner).draining = false;
    }

    fn hand_over(&self, job: Job) {
        let mut queue = self.shared.lock();
        if queue.idle <= queue.jobs.len() && queue.threads < self.shared.max_threads {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("forerun-fuse-slow".to_string());
            match thread.spawn(move || shared.work()) {
                Ok(_) => queue.threads += 1,
                // Without another thread those that there are must do; without any, this one.
                Err(_) if queue.threads > 0 => {}
                Err(_) => {
                    drop(queue);
                    return guarded(job);
                }
            }
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.arrived.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                guarded(job);
                queue = self.lock();
                continue;
            }
            queue.idle += 1;
            if queue.draining {
                self.drained.notify_all();
            }
            let (guard, timeout) = self
                .arrived
                .wait_timeout(queue, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            queue = guard;
            queue.idle -= 1;
            if timeout.timed_out() && queue.jobs.is_empty() {
                queue.threads -= 1;
                self.drained.notify_all();
                return;
            }
        }
    }
}

fn guarded(job: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(job)).is_err() {
        tracing::error!("a request panicked and was answered with an input/output error");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn slow_jobs_do_not_hold_up_others() {
        let workers = Workers::new(2);
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let (done, finished) = mpsc::channel();
        // One slow job on the spot, twenty more handed over: run() must return each time.
        let first = {
            let (workers, gate, done) = (workers.clone(), Arc::clone(&gate), done.clone());
            std::thread::spawn(move || {
                workers.run(move || {
                    gate.lock().unwrap().recv().unwrap();
                    done.send("slow").unwrap();
                });
            })
        };
        while workers.shared.inline.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        for _ in 0..20 {
            let (gate, done) = (Arc::clone(&gate), done.clone());
            workers.run(move || {
                gate.lock().unwrap().recv().unwrap();
                done.send("slow").unwrap();
            });
        }
        workers.run(move || done.send("quick").unwrap());
        assert_eq!(finished.recv().unwrap(), "quick");
        for _ in 0..21 {
            release.send(()).unwrap();
        }
        assert_eq!(finished.iter().filter(|name| *name == "slow").count(), 21);
        first.join().unwrap();
    }

    #[test]
    fn draining_waits_for_what_was_handed_over() {
        let workers = Workers::new(1);
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..8 {
            let done = Arc::clone(&done);
            workers.run(move || {
                std::thread::yield_now();
                done.fetch_add(1, Ordering::AcqRel);
            });
        }
        workers.drain();
        assert_eq!(done.load(Ordering::Acquire), 8);
        workers.drain();
    }

    #[test]
    fn a_panic_ends_one_job() {
        let workers = Workers::new(1);
        let (done, finished) = mpsc::channel();
        for n in 0..3 {
            let done = done.clone();
            workers.run(move || {
                assert_ne!(n, 1, "a panic on purpose");
                done.send(n).unwrap();
            });
        }
        drop(done);
        let mut seen: Vec<_> = finished.iter().collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 2]);
    }
}
