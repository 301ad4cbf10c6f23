//! Panics of a request, which end that request and not its thread.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `job`, and returns whether it ended without a panic.
pub fn guarded(job: impl FnOnce()) -> bool {
    let ended = catch_unwind(AssertUnwindSafe(job)).is_ok();
    if !ended {
        tell_of_panic();
    }
    ended
}

/// Logs that a request panicked.
pub fn tell_of_panic() {
    tracing::error!("a request panicked and was answered with an input/output error");
}
