//! A chunk that readers wait for.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use forerun_io::Unpoisoned;

use crate::RemoteError;

/// The outcome of one chunk, shared by all readers that wait for it. It is set once.
#[derive(Debug, Default)]
pub struct Pending {
    outcome: Mutex<Option<Result<(), RemoteError>>>,
    settled: Condvar,
}

impl Pending {
    /// Sets the outcome and wakes the readers. Only the first call counts.
    pub fn settle(&self, outcome: Result<(), RemoteError>) {
        let mut slot = self.outcome.lock().unpoisoned();
        slot.get_or_insert(outcome);
        drop(slot);
        self.settled.notify_all();
    }

    pub fn wait(&self, deadline: Instant) -> Option<Result<(), RemoteError>> {
        let slot = self.outcome.lock().unpoisoned();
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self
            .settled
            .wait_timeout_while(slot, left, |slot| slot.is_none());
        let (slot, _timeout) = waited.unpoisoned();
        slot.clone()
    }
}

pub fn settle(pending: Option<Arc<Pending>>, outcome: Result<(), RemoteError>) {
    if let Some(pending) = pending {
        pending.settle(outcome);
    }
}
