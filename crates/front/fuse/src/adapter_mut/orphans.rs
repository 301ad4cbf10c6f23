//! Open files without a name.
//!
//! The driver frees the clusters of such a file on its last RELEASE. The kernel sends RELEASE when
//! the file is closed, but close(2) does not wait for the answer. So a thread may still be handling
//! it when another request finds the volume full. That request waits here.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use forerun_io::Unpoisoned;
use forerun_vfs::NodeId;

/// How long a request waits on a full volume. A RELEASE already sent takes longer only on a slow
/// device.
const WAIT: Duration = Duration::from_millis(100);

/// The open files without a name, and the number closed so far.
#[derive(Debug, Default)]
pub struct Orphans {
    state: Mutex<State>,
    closed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Open files without a name, except those that a request has waited for in vain: a program
    /// keeps them open.
    awaited: HashSet<NodeId>,
    closed: u64,
}

impl Orphans {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    pub fn await_close(&self, node: NodeId) {
        self.state().awaited.insert(node);
    }

    pub fn close(&self, node: NodeId) {
        let mut state = self.state();
        state.awaited.remove(&node);
        state.closed += 1;
        self.closed.notify_all();
    }

    /// Returns the number of files closed so far, for [`more_than`](Self::more_than).
    pub fn count(&self) -> u64 {
        self.state().closed
    }

    /// Returns whether more than `before` files have been closed. If not, waits briefly for one of
    /// those open now, once for each.
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
