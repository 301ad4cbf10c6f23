//! Logs each error only once.
//!
//! Every reader that retries requests a bad block again, but the log should mention it once.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

use forerun_io::Unpoisoned;
use forerun_vfs::{Error, NodeId};

use crate::counts::Operation;
use crate::errno::worth_logging;

/// Maximum number of different errors; further ones are not logged.
const REMEMBERED: usize = 1024;

#[derive(Debug, Default)]
pub struct Failures {
    seen: Mutex<HashSet<u64>>,
}

impl Failures {
    /// Logs `error` if it is new and errno alone does not identify it.
    pub fn report(&self, operation: Operation, node: NodeId, error: &Error) {
        if worth_logging(error) && self.is_new(error) {
            tracing::error!(operation = operation.name(), node = node.0, "{error}");
        }
    }

    /// Returns whether the error is new, and remembers it. The request does not matter, because the
    /// error's text includes the offset in the image.
    fn is_new(&self, error: &Error) -> bool {
        let mut hasher = DefaultHasher::new();
        error.to_string().hash(&mut hasher);
        let mut seen = self.seen.lock().unpoisoned();
        if seen.len() == REMEMBERED {
            seen.insert(0);
            tracing::error!("{REMEMBERED} different errors: further ones are not logged");
        }
        seen.len() < REMEMBERED && seen.insert(hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_each() {
        let failures = Failures::default();
        let error = |offset| Error::io(offset, 1024, std::io::Error::other("bad block"));
        assert!(failures.is_new(&error(0)));
        assert!(!failures.is_new(&error(0)));
        assert!(failures.is_new(&error(1024)));
        for n in 0..5000 {
            failures.is_new(&error(n));
        }
        assert!(failures.seen.lock().unwrap().len() <= REMEMBERED + 1);
        assert!(!failures.is_new(&error(9999)));
    }
}
