//! A chunk that readers wait for.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::RemoteError;

/// Shared by all who wait for one chunk. Settled once.
#[derive(Debug, Default)]
pub struct Pending {
    outcome: Mutex<Option<Result<(), RemoteError>>>,
    settled: Condvar,
}

impl Pending {
    /// Says how it ended, and wakes who waits. What was said first holds.
    pub fn settle(&self, outcome: Result<(), RemoteError>) {
        let mut slot = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert(outcome);
        drop(slot);
        self.settled.notify_all();
    }

    /// Waits for the end, until `deadline` at the longest; nothing if it had not come then.
    pub fn wait(&self, deadline: Instant) -> Option<Result<(), RemoteError>> {
        let slot = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self
            .settled
            .wait_timeout_while(slot, left, |slot| slot.is_none());
        let (slot, _timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        slot.clone()
    }
}

/// Wakes the readers of a chunk, if there are any, with its outcome.
pub fn settle(pending: Option<Arc<Pending>>, outcome: Result<(), RemoteError>) {
    if let Some(pending) = pending {
        pending.settle(outcome);
    }
}
