//! How long the current thread may wait for a slow source.
//!
//! A front end answers many requests at once, and its threads must not all wait for one server. The
//! wait happens deep below it, often in the middle of a driver. So the front end sets a rule for
//! its thread, and code that may wait long calls [`allowed`] first:
//!
//! - [`attempt`]: do not wait at all. The work fails where it would wait, and the caller is told.
//! - [`until`]: stop waiting when a [`Stop`] is set, for work that no caller wants any more.
//!
//! Without a rule a thread waits without a limit. Threads that the work starts have no rule.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The longest wait between two calls of [`allowed`].
pub const SLICE: Duration = Duration::from_millis(50);

/// A flag that ends the waits of another thread.
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

impl Stop {
    /// Ends the waits. The thread notices within [`SLICE`].
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

#[derive(Clone)]
enum Rule {
    Free,
    /// Do not wait. `refused` records that a wait was refused.
    Never {
        refused: bool,
    },
    Until(Arc<Stop>),
}

thread_local! {
    static RULE: RefCell<Rule> = const { RefCell::new(Rule::Free) };
}

/// A guard that restores the earlier rule, also after a panic.
struct Restore(Option<Rule>);

impl Drop for Restore {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            RULE.with_borrow_mut(|rule| *rule = before);
        }
    }
}

fn under(rule: Rule) -> Restore {
    Restore(Some(RULE.replace(rule)))
}

/// Runs `work` without waits. Returns `None` if a wait was refused: the result, which may be an
/// error or incomplete, is then dropped.
pub fn attempt<T>(work: impl FnOnce() -> T) -> Option<T> {
    let restore = under(Rule::Never { refused: false });
    let result = work();
    let refused = was_refused();
    drop(restore);
    (!refused).then_some(result)
}

/// Runs `work`, whose waits end when `stop` is set.
pub fn until<T>(stop: &Arc<Stop>, work: impl FnOnce() -> T) -> T {
    let _restore = under(Rule::Until(Arc::clone(stop)));
    work()
}

/// Returns whether the current thread may wait, or continue to wait. A long wait consists of slices
/// of at most [`SLICE`], with this call before each.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] inside [`attempt`], which records it;
/// [`io::ErrorKind::Interrupted`] once the [`Stop`] of [`until`] is set.
pub fn allowed() -> io::Result<()> {
    RULE.with_borrow_mut(|rule| match rule {
        Rule::Free => Ok(()),
        Rule::Never { refused } => {
            *refused = true;
            let kind = io::ErrorKind::WouldBlock;
            Err(io::Error::new(kind, "the bytes are not here yet"))
        }
        Rule::Until(stop) if stop.is_set() => {
            let kind = io::ErrorKind::Interrupted;
            Err(io::Error::new(kind, "the request was given up"))
        }
        Rule::Until(_) => Ok(()),
    })
}

/// Returns whether the current thread has a rule. Without one, waits need no slices.
#[must_use]
pub fn is_ruled() -> bool {
    RULE.with_borrow(|rule| !matches!(rule, Rule::Free))
}

#[must_use]
pub fn is_attempt() -> bool {
    RULE.with_borrow(|rule| matches!(rule, Rule::Never { .. }))
}

/// Returns whether the rule of the current thread has refused a wait. A failure then affects only
/// this thread, and not others that want the same bytes.
#[must_use]
pub fn was_refused() -> bool {
    RULE.with_borrow(|rule| match rule {
        Rule::Free => false,
        Rule::Never { refused } => *refused,
        Rule::Until(stop) => stop.is_set(),
    })
}

/// Forgets that a wait was refused, because the result so far is sufficient for [`attempt`].
pub fn accept() {
    RULE.with_borrow_mut(|rule| {
        if let Rule::Never { refused } = rule {
            *refused = false;
        }
    });
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn an_attempt_gives_nothing_once_a_wait_was_refused() {
        assert_eq!(attempt(|| 7), Some(7));
        let refused = attempt(|| allowed().unwrap_err().kind());
        assert_eq!(refused, None);
        let accepted = attempt(|| {
            assert!(allowed().is_err() && was_refused());
            accept();
            7
        });
        assert_eq!(accepted, Some(7));
        assert!(allowed().is_ok() && !is_ruled());
    }

    #[test]
    fn a_stop_ends_waits_of_its_work_only() {
        let stop = Arc::new(Stop::default());
        let kind = until(&stop, || {
            assert!(allowed().is_ok() && !was_refused());
            stop.set();
            assert!(was_refused());
            allowed().unwrap_err().kind()
        });
        assert_eq!(kind, io::ErrorKind::Interrupted);
        assert!(allowed().is_ok());
    }

    #[test]
    fn a_panic_takes_its_rule_along() {
        let panicked = catch_unwind(AssertUnwindSafe(|| attempt(|| panic!("on purpose"))));
        assert!(panicked.is_err());
        assert!(!is_ruled());
    }

    #[test]
    fn an_attempt_inside_other_work_leaves_its_rule_alone() {
        let stop = Arc::new(Stop::default());
        until(&stop, || {
            assert_eq!(attempt(|| drop(allowed())), None);
            assert!(allowed().is_ok());
            stop.set();
            assert!(allowed().is_err());
        });
    }
}
