//! Remembers reads that failed without an answer, so that repeated reads fail soon.
//!
//! The kernel repeats a failed read several times: first as readahead, then page by page. If each
//! of these reads waited for the server, a program would get its error only after several timeouts.

use std::ops::Range;
use std::sync::Mutex;
use std::time::Instant;

use forerun_io::Unpoisoned;

use crate::fetch::tuning::{FAILED_READS, REPEATED_READ};

/// Chunks that readers waited for without success in the last second.
#[derive(Default)]
pub struct Outage {
    failed: Mutex<Vec<Failed>>,
}

struct Failed {
    chunks: Range<u64>,
    at: Instant,
}

impl Outage {
    /// Records that none of `chunks` arrived within the timeout.
    pub fn record(&self, chunks: Range<u64>) {
        let mut failed = self.failed.lock().unpoisoned();
        failed.retain(|failed| failed.at.elapsed() < REPEATED_READ);
        if failed.len() >= FAILED_READS {
            failed.remove(0);
        }
        failed.push(Failed {
            chunks,
            at: Instant::now(),
        });
    }

    /// Returns whether a reader has recently waited for `chunk` without success.
    pub fn has_failed(&self, chunk: u64) -> bool {
        let failed = self.failed.lock().unpoisoned();
        let mut recent = failed.iter().rev();
        recent.any(|failed| failed.chunks.contains(&chunk) && failed.at.elapsed() < REPEATED_READ)
    }

    /// Forgets all failures, because a server has answered or the servers or credentials change.
    pub fn clear(&self) {
        self.failed.lock().unpoisoned().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_failed_for_a_moment_and_only_they() {
        let outage = Outage::default();
        outage.record(3..5);
        let found = |chunk| outage.has_failed(chunk);
        assert_eq!([2, 3, 4, 5].map(found), [false, true, true, false]);
        std::thread::sleep(REPEATED_READ);
        assert!(!found(3));
        outage.record(3..5);
        outage.clear();
        assert!(!found(3));
    }

    #[test]
    fn many_failures_take_bounded_memory() {
        let outage = Outage::default();
        for chunk in 0..1000 {
            outage.record(chunk..chunk + 1);
        }
        assert!(outage.failed.lock().unpoisoned().len() <= FAILED_READS);
        assert!(outage.has_failed(999));
    }
}
