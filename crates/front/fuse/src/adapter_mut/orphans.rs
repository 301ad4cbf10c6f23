//! Files that have no name left, until they are closed.
//!
//! The clusters of such a file are free when the driver is told of its last RELEASE. The kernel sends
//! that request when the file is closed, but close(2) does not wait for the answer: a thread may still
//! be about to answer it when others have removed the name and find the volume full. They wait here.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use forerun_io::Unpoisoned;
use forerun_vfs::NodeId;

/// How long a request that finds the volume full waits. A RELEASE that was sent takes longer only where
/// the device does.
const WAIT: Duration = Duration::from_millis(100);

/// The files, and how many were closed.
#[derive(Debug, Default)]
pub struct Orphans {
    state: Mutex<State>,
    /// Signalled when a file was closed.
    closed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Open files without a name. Not those that a request has waited for in vain: a program keeps them
    /// open.
    awaited: HashSet<NodeId>,
    /// Number of files that were closed.
    closed: u64,
}

impl Orphans {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// Records that an open file has lost its name.
    pub fn await_close(&self, node: NodeId) {
        self.state().awaited.insert(node);
    }

    /// Records that a file without a name was closed.
    pub fn close(&self, node: NodeId) {
        let mut state = self.state();
        state.awaited.remove(&node);
        state.closed += 1;
        self.closed.notify_all();
    }

    /// Returns how many files have been closed so far. Pass the result to [`more_than`](Self::more_than) to learn
    /// whether more were closed since.
    pub fn count(&self) -> u64 {
        self.state().closed
    }

    /// Returns whether more than `before` files were closed. If not, waits for one of those that are
    /// open now, but not for long, and for each of them only once.
    pub fn more_than(&self, before: u64) -> bool {
        let waits = |state: &mut State| state.closed == before && !state.awaited.is_empty();
        let waited = self.closed.wait_timeout_while(self.state(), WAIT, waits);
        let (mut state, timeout) = waited.unpoisoned();
        if timeout.timed_out() {
            state.awaited.clear();
        }
        state.closed != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_waited_for_until_it_is_closed() {
        let orphans = Orphans::default();
        assert!(!orphans.more_than(0), "there is none");
        orphans.await_close(NodeId(7));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| orphans.more_than(0));
            orphans.close(NodeId(7));
            assert!(waiting.join().unwrap());
        });
        assert!(orphans.more_than(0));
        assert!(!orphans.more_than(orphans.count()));
    }

    #[test]
    fn a_file_that_stays_open_is_waited_for_once() {
        let orphans = Orphans::default();
        orphans.await_close(NodeId(7));
        assert!(!orphans.more_than(0));
        assert!(orphans.state().awaited.is_empty());
        orphans.close(NodeId(7));
        assert!(orphans.more_than(0), "its clusters are free all the same");
    }
}
