//! The threads that read and decode ahead.
//!
//! Jobs never wait for queued jobs: a thread that needs a queued read makes it itself (see
//! `read/segment.rs`). So the pool works with a single thread, and reading works with none, if no
//! thread can be started.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use crossbeam_channel::{Receiver, Sender, select_biased, unbounded};
use forerun_sys::threads;

type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads that starts at its first use. The threads end when the pool is dropped and its
/// queues are empty.
pub struct Pool {
    threads: usize,
    queues: OnceLock<Option<Queues>>,
}

/// The queues of the pool. Jobs that find further jobs run before jobs that move bytes.
struct Queues {
    finding: Sender<Job>,
    moving: Sender<Job>,
}

impl Pool {
    pub const fn new(threads: usize) -> Self {
        Self {
            threads,
            queues: OnceLock::new(),
        }
    }

    /// Queues `job`. The queue needs no bound: the budget of the segments that its jobs fill bounds
    /// it.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(queues) = self.queues() {
            let _fails_only_without_threads = queues.moving.send(Box::new(job));
        }
    }

    /// Queues `job` before all jobs of [`submit`](Self::submit). For metadata, which determines the
    /// next jobs.
    pub fn submit_first(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(queues) = self.queues() {
            let _fails_only_without_threads = queues.finding.send(Box::new(job));
        }
    }

    /// Returns whether the pool has threads; starts them if needed.
    pub fn has_threads(&self) -> bool {
        self.queues().is_some()
    }

    fn queues(&self) -> Option<&Queues> {
        self.queues.get_or_init(|| start(self.threads)).as_ref()
    }
}

fn start(count: usize) -> Option<Queues> {
    let (finding, to_find) = unbounded::<Job>();
    let (moving, to_move) = unbounded::<Job>();
    let mut started = 0;
    for n in 0..count {
        let (to_find, to_move) = (to_find.clone(), to_move.clone());
        let body = move || work(&to_find, &to_move);
        match threads::spawn(format!("forerun-ahead-{n}"), body) {
            Ok(_detached) => started += 1,
            Err(error) => tracing::warn!("cannot start a read-ahead thread: {error}"),
        }
    }
    (started > 0).then_some(Queues { finding, moving })
}

fn work(to_find: &Receiver<Job>, to_move: &Receiver<Job>) {
    // Both queues close when the pool is dropped. Queued jobs still run.
    while let Ok(job) = select_biased! {
        recv(to_find) -> job => job.or_else(|_| to_move.recv()),
        recv(to_move) -> job => job.or_else(|_| to_find.recv()),
    } {
        // The guards of the job mark its work as failed; the thread takes the next job.
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("a job of the read-ahead pool panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_finds_comes_before_what_moves_and_all_is_done() {
        let pool = Pool::new(1);
        let (began, has_begun) = channel();
        let (release, gate) = channel::<()>();
        let (done, order) = channel();
        pool.submit(move || {
            began.send(()).unwrap();
            gate.recv().unwrap();
        });
        // The only thread is busy, so all of these are queued.
        has_begun.recv().unwrap();
        for n in [3, 4] {
            let done = done.clone();
            pool.submit(move || done.send(n).unwrap());
        }
        for n in [1, 2] {
            let done = done.clone();
            pool.submit_first(move || done.send(n).unwrap());
        }
        drop((done, pool));
        release.send(()).unwrap();
        assert_eq!(order.iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_panic_ends_one_job() {
        let pool = Pool::new(1);
        let (done, order) = channel();
        pool.submit_first(|| panic!("on purpose"));
        pool.submit(move || done.send(()).unwrap());
        order.recv().unwrap();
    }
}
