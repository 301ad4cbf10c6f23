//! open(2) of a name that another process replaces again and again.
//!
//! The kernel looks the name up and then opens the node. If a rename has replaced the file between the
//! two, the node is gone, and OPEN fails with ESTALE. The kernel begins again, but only once: a second
//! rename at the same moment would fail the system call. So the server holds the file of the second
//! LOOKUP open for that thread until its OPEN is answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use forerun_io::Unpoisoned;
use forerun_vfs::NodeId;

/// How long a thread is remembered that sends nothing more: it was killed.
const EXPIRY: Duration = Duration::from_secs(2);
/// Threads remembered at once. Further ones get ESTALE.
const MAX_THREADS: usize = 256;

/// The threads that begin again. Methods return nodes that are held no longer: the caller ends their use.
#[derive(Debug, Default)]
pub struct Reopening {
    /// Number of threads, so that other requests take no lock.
    count: AtomicUsize,
    threads: Mutex<HashMap<u32, Again>>,
}

#[derive(Debug)]
struct Again {
    held: Option<NodeId>,
    since: Instant,
}

impl Reopening {
    /// Records that OPEN of `thread` fails with ESTALE.
    pub fn await_lookup(&self, thread: u32) -> Vec<NodeId> {
        let mut threads = self.threads();
        let now = Instant::now();
        let mut free = take(&mut threads, |other, again| {
            other == thread || now.duration_since(again.since) > EXPIRY
        });
        if thread != 0 && threads.len() < MAX_THREADS {
            let again = Again {
                held: None,
                since: now,
            };
            free.extend(threads.insert(thread, again).and_then(|old| old.held));
        }
        self.count.store(threads.len(), Ordering::Relaxed);
        free
    }

    /// Returns whether OPEN of `thread` has just failed.
    pub fn is_awaited(&self, thread: u32) -> bool {
        let is_recent = |again: &Again| again.since.elapsed() < EXPIRY;
        self.is_any() && self.threads().get(&thread).is_some_and(is_recent)
    }

    /// Records that `node` is held for `thread`.
    pub fn hold(&self, thread: u32, node: NodeId) -> Vec<NodeId> {
        match self.threads().get_mut(&thread) {
            Some(again) => again.held.replace(node).into_iter().collect(),
            // It was forgotten meanwhile.
            None => vec![node],
        }
    }

    /// Records that `thread` needs its file no longer.
    pub fn ended(&self, thread: u32) -> Vec<NodeId> {
        self.end(|other, _| other == thread)
    }

    /// Records that the kernel forgets `node`: the thread that it was held for has ended.
    pub fn forgotten(&self, node: NodeId) -> Vec<NodeId> {
        self.end(|_, again| again.held == Some(node))
    }

    fn end(&self, ends: impl Fn(u32, &Again) -> bool) -> Vec<NodeId> {
        if !self.is_any() {
            return Vec::new();
        }
        let mut threads = self.threads();
        let free = take(&mut threads, ends);
        self.count.store(threads.len(), Ordering::Relaxed);
        free
    }

    fn is_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    fn threads(&self) -> MutexGuard<'_, HashMap<u32, Again>> {
        self.threads.lock().unpoisoned()
    }
}

/// Removes the threads for which `ends` holds, and returns their files.
fn take(threads: &mut HashMap<u32, Again>, ends: impl Fn(u32, &Again) -> bool) -> Vec<NodeId> {
    let ended = threads.extract_if(|thread, again| ends(*thread, again));
    ended.filter_map(|(_, again)| again.held).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_held_from_the_second_lookup_to_the_open() {
        let reopening = Reopening::default();
        assert!(!reopening.is_awaited(7));
        assert_eq!(reopening.ended(7), []);
        assert_eq!(reopening.await_lookup(7), []);
        assert!(reopening.is_awaited(7) && !reopening.is_awaited(8));
        assert_eq!(reopening.hold(7, NodeId(1)), []);
        assert_eq!(reopening.hold(7, NodeId(2)), [NodeId(1)]);
        assert_eq!(reopening.ended(8), []);
        assert_eq!(reopening.ended(7), [NodeId(2)]);
        assert!(!reopening.is_awaited(7));
        assert_eq!(reopening.hold(7, NodeId(3)), [NodeId(3)]);
    }

    #[test]
    fn a_thread_that_was_killed_holds_nothing() {
        let reopening = Reopening::default();
        reopening.await_lookup(7);
        reopening.hold(7, NodeId(1));
        assert_eq!(reopening.forgotten(NodeId(2)), []);
        assert_eq!(reopening.forgotten(NodeId(1)), [NodeId(1)]);
        for thread in 0..1000 {
            reopening.await_lookup(thread);
        }
        assert_eq!(reopening.threads().len(), MAX_THREADS);
    }
}
