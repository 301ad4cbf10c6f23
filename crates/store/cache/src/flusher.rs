//! Writeback: a thread that makes stored chunks durable after some seconds or some MiB.
//!
//! The thread starts with the first stored chunk and ends with the cache. It holds a reference to
//! the cache only while it works, so that the cache closes when its users are gone. The cache
//! passes the work as a closure.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use forerun_io::Unpoisoned;
use forerun_sys::threads;

use crate::options::CacheOptions;

/// The work of the thread. Returns whether to run again soon; `None` if the cache is gone.
pub(crate) type Tend = Box<dyn Fn() -> Option<bool> + Send + Sync>;

/// State shared by the thread and its callers.
#[derive(Debug, Default)]
struct Told {
    dirty: u64,
    running: bool,
    end: bool,
}

struct FlusherShared {
    told: Mutex<Told>,
    changed: Condvar,
    bytes: u64,
    after: Duration,
    tend: Tend,
}

pub(crate) struct Flusher {
    shared: Arc<FlusherShared>,
}

impl Flusher {
    pub(crate) fn new(options: &CacheOptions, tend: Tend) -> Self {
        Self {
            shared: Arc::new(FlusherShared {
                told: Mutex::default(),
                changed: Condvar::new(),
                bytes: options.flush_bytes,
                after: options.flush_after,
                tend,
            }),
        }
    }

    /// Records that `bytes` bytes were stored, and starts the thread if it is not running.
    pub(crate) fn dirtied(&self, bytes: u64) {
        let shared = &self.shared;
        let mut told = shared.told();
        let was = told.dirty;
        told.dirty = was + bytes;
        if !told.running {
            let ours = Arc::clone(shared);
            // Without the thread, chunks become durable when the blob is dropped.
            told.running = threads::spawn("cache-flush", move || run(&ours)).is_ok();
        }
        if was == 0 || told.dirty >= shared.bytes {
            shared.changed.notify_all();
        }
    }
}

impl fmt::Debug for Flusher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flusher")
            .field("told", &self.shared.told)
            .finish_non_exhaustive()
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.shared.told().end = true;
        self.shared.changed.notify_all();
    }
}

impl FlusherShared {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unpoisoned()
    }
}

fn run(shared: &FlusherShared) {
    loop {
        let told = shared.told();
        let idle = |told: &mut Told| told.dirty == 0 && !told.end;
        let told = shared.changed.wait_while(told, idle).unpoisoned();
        let few = |told: &mut Told| told.dirty < shared.bytes && !told.end;
        let waited = shared.changed.wait_timeout_while(told, shared.after, few);
        let (mut told, _) = waited.unpoisoned();
        if told.end {
            return;
        }
        told.dirty = 0;
        drop(told);
        match (shared.tend)() {
            Some(true) => shared.told().dirty += 1,
            Some(false) => {}
            None => return,
        }
    }
}
