//! Limits a panic to the request that caused it.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `job`. Returns false if it panicked.
pub fn guarded(job: impl FnOnce()) -> bool {
    let ended = catch_unwind(AssertUnwindSafe(job)).is_ok();
    if !ended {
        tell_of_panic();
    }
    ended
}

pub fn tell_of_panic() {
    tracing::error!("a request panicked and was answered with an input/output error");
}
