//! Processes many chunks in parallel, on as many cores as memory allows.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use forerun_sys::memory_limit::MemoryLimit;
use forerun_sys::threads;

/// Most threads, even on more cores.
const THREADS: usize = 16;

/// Calls `work` with each index below `count`, on several threads that each need `each` bytes of
/// memory. A thread stops at its first error; one of the errors is returned.
pub(crate) fn for_each(
    count: usize,
    each: u64,
    work: impl Fn(usize) -> io::Result<()> + Sync,
) -> io::Result<()> {
    let next = AtomicUsize::new(0);
    let take = || -> io::Result<()> {
        loop {
            match next.fetch_add(1, Ordering::Relaxed) {
                index if index < count => work(index)?,
                _ => return Ok(()),
            }
        }
    };
    let most = MemoryLimit::of_process().threads(each).min(THREADS);
    std::thread::scope(|scope| {
        let start = |_| threads::spawn_scoped(scope, "cache-hash", take);
        let started = (0..most).map(start).collect::<io::Result<Vec<_>>>()?;
        started.into_iter().try_for_each(|thread| {
            let broken = |_| Err(io::Error::other("a hashing thread panicked"));
            thread.join().unwrap_or_else(broken)
        })
    })
}
