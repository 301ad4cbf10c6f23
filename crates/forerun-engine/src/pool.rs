//! The threads that read and decode ahead.
//!
//! Jobs never wait for other jobs: whoever needs a queued read first does it itself (see
//! `segment.rs`), so the pool may be as small as one thread, or none where none can be started.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use crossbeam_channel::{Sender, unbounded};

type Job = Box<dyn FnOnce() + Send>;

/// Starts its threads at the first job, ends them when it is dropped and the queue is empty.
pub struct Pool {
    threads: usize,
    queue: OnceLock<Option<Sender<Job>>>,
}

impl Pool {
    pub const fn new(threads: usize) -> Self {
        Self {
            threads,
            queue: OnceLock::new(),
        }
    }

    /// Runs `job` on some thread, soon. The queue is not bounded here: what is queued is bounded by
    /// the budget of the segments it fills.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(queue) = self.queue.get_or_init(|| start(self.threads)) {
            let _fails_only_without_threads = queue.send(Box::new(job));
        }
    }
}

fn start(threads: usize) -> Option<Sender<Job>> {
    let (sender, receiver) = unbounded::<Job>();
    let mut started = 0;
    for n in 0..threads {
        let receiver = receiver.clone();
        let thread = std::thread::Builder::new().name(format!("forerun-ahead-{n}"));
        let spawned = thread.spawn(move || {
            for job in receiver {
                // The job's own guards mark its work as failed; the thread goes on with the next.
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    tracing::error!("a job of the read-ahead pool panicked");
                }
            }
        });
        match spawned {
            Ok(_detached) => started += 1,
            Err(error) => tracing::warn!("cannot start a read-ahead thread: {error}"),
        }
    }
    (started > 0).then_some(sender)
}
