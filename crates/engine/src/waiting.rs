//! Waits on a condition variable in slices, if a rule limits how long the thread may wait.

use std::sync::{Condvar, MutexGuard};

use forerun_io::{Unpoisoned, wait};

/// Waits until `changed` is notified, or at most one slice if a rule of [`wait`] is in force.
pub fn wait_slice<'g, T>(changed: &Condvar, guard: MutexGuard<'g, T>) -> MutexGuard<'g, T> {
    if !wait::is_ruled() {
        return changed.wait(guard).unpoisoned();
    }
    let waited = changed.wait_timeout(guard, wait::SLICE);
    waited.unpoisoned().0
}
