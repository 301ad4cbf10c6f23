//! Waits in slices, if a rule says how long a thread may wait.

use std::sync::{Condvar, MutexGuard};

use forerun_io::{Unpoisoned, wait};

/// Waits until `changed` is notified; at most for one slice if a rule of [`wait`] is in force.
pub fn wait_slice<'g, T>(changed: &Condvar, guard: MutexGuard<'g, T>) -> MutexGuard<'g, T> {
    if !wait::is_ruled() {
        return changed.wait(guard).unpoisoned();
    }
    let waited = changed.wait_timeout(guard, wait::SLICE);
    waited.unpoisoned().0
}
