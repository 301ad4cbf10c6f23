//! The tree of an archive that is used while it is read: one thread adds members, others look things up, and wait for
//! what has not come yet.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use forerun_io::{Unpoisoned as _, wait};
use forerun_spans::GrowingSpans;
use forerun_vfs::{Error, Result};

use crate::error::Check;
use crate::parser::Member;
use crate::tree::{Builder, Tree};

/// The parts of an archive that has come so far.
pub struct Growing {
    pub tree: Arc<SharedTree>,
    /// Nothing of an archive that is not compressed.
    pub spans: Option<Arc<GrowingSpans>>,
}

/// A tree that grows.
pub struct SharedTree {
    state: Mutex<Growth>,
    changed: Condvar,
}

/// The tree so far.
struct Growth {
    /// Nothing once the tree is finished.
    builder: Option<Builder>,
    /// Why nothing will come any more.
    failed: Option<Error>,
    /// Why nothing comes at the moment.
    stalled: Option<Error>,
}

impl SharedTree {
    pub const fn new(builder: Builder) -> Self {
        let state = Growth {
            builder: Some(builder),
            failed: None,
            stalled: None,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Growth> {
        // A member that was added in part is one that is not there: the pass has ended then.
        self.state.lock().unpoisoned()
    }

    /// Adds a member. Returns why it was left out, if it was.
    ///
    /// # Errors
    /// Those of [`Builder::add`].
    pub fn add(&self, member: Member) -> Result<Option<Check>> {
        let mut state = self.lock();
        let added = match &mut state.builder {
            Some(builder) => builder.add(member),
            None => Ok(None),
        };
        drop(state);
        self.changed.notify_all();
        added
    }

    /// Takes the tree, which has all members.
    pub fn finish(&self) -> Tree {
        let builder = self.lock().builder.take();
        let builder =
            builder.unwrap_or_else(|| Builder::new(&forerun_vfs::Limits::default(), false));
        builder.finish()
    }

    /// Wakes those that wait: something else than the tree has changed.
    pub fn notify(&self) {
        // With the lock, so that no thread is between its question and its wait.
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Fails all questions from now on.
    pub fn fail(&self, error: Error) {
        self.lock().failed.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Fails the questions that would have to wait, until nothing keeps the archive from coming.
    pub fn stall(&self, error: Option<Error>) {
        self.lock().stalled = error;
        self.changed.notify_all();
    }

    /// Returns whether the archive does not come at the moment.
    pub fn is_stalled(&self) -> bool {
        self.lock().stalled.is_some()
    }

    /// Asks until there is an answer: with each change, and from time to time. The question gets the tree, as long as
    /// it is not finished.
    ///
    /// # Errors
    /// Those of the question; why the archive cannot be read; [`Error::Io`] where this thread may not wait.
    pub fn ask<T>(
        &self,
        mut question: impl FnMut(Option<&Builder>) -> Result<Option<T>>,
    ) -> Result<T> {
        let mut state = self.lock();
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if let Some(answer) = question(state.builder.as_ref())? {
                return Ok(answer);
            }
            if let Some(error) = &state.stalled {
                return Err(error.clone());
            }
            wait::allowed_for_growth().map_err(|error| Error::io(0, 0, error))?;
            let waited = self.changed.wait_timeout(state, wait::SLICE);
            state = waited.unpoisoned().0;
        }
    }

    /// Asks once, and does not wait.
    pub fn peek<T>(&self, question: impl FnOnce(&Builder) -> T) -> Option<T> {
        self.lock().builder.as_ref().map(question)
    }
}
