//! Errors, each logged once.
//!
//! A bad block is asked for again by every reader that retries; the log should say so once.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use forerun_vfs::{Error, NodeId};

use crate::counts::Operation;
use crate::errno::worth_logging;

/// Different errors that are told apart; after that many, further ones are not logged.
const REMEMBERED: usize = 1024;

/// What has been logged.
#[derive(Debug, Default)]
pub struct Failures {
    seen: Mutex<HashSet<u64>>,
}

impl Failures {
    /// Logs `error` if it is news and errno alone would not tell it.
    pub fn report(&self, operation: Operation, node: NodeId, error: &Error) {
        if worth_logging(error) && self.is_new(operation, node, error) {
            tracing::error!(operation = operation.name(), node = node.0, "{error}");
        }
    }

    fn is_new(&self, operation: Operation, node: NodeId, error: &Error) -> bool {
        let mut hasher = DefaultHasher::new();
        (operation.name(), node, error.to_string()).hash(&mut hasher);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
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
        let new = |node, offset| failures.is_new(Operation::Read, NodeId(node), &error(offset));
        assert!(new(1, 0));
        assert!(!new(1, 0));
        assert!(new(1, 1024));
        assert!(new(2, 0));
        for n in 0..5000 {
            new(3, n);
        }
        assert!(failures.seen.lock().unwrap().len() <= REMEMBERED + 1);
        assert!(!new(4, 0));
    }
}
