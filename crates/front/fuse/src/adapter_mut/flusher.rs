//! Periodic writeback for programs that do not call fsync(2).
//!
//! All changes are made durable a few seconds after they were made. A power failure then loses only
//! seconds of work, and a removed medium is usually marked clean.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use forerun_engine::Volume;
use forerun_io::Unpoisoned;
use forerun_sys::threads;
use forerun_vfs::Error;

use super::known::Known;

/// Maximum age of an unwritten change.
const INTERVAL: Duration = Duration::from_secs(5);

pub struct Flusher {
    volume: Arc<Volume>,
    known: Arc<Known>,
    shared: Arc<FlusherShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The error of the last commit, until it is reported.
    unwritten: Mutex<Option<Error>>,
}

#[derive(Default)]
struct FlusherShared {
    state: Mutex<FlusherState>,
    told: Condvar,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum FlusherState {
    #[default]
    Clean,
    Changed,
    Ended,
}

impl FlusherShared {
    fn state(&self) -> MutexGuard<'_, FlusherState> {
        self.state.lock().unpoisoned()
    }
}

impl Flusher {
    /// Creates a flusher. The thread starts with the first change.
    pub fn new(volume: Arc<Volume>, known: Arc<Known>) -> Self {
        Self {
            volume,
            known,
            shared: Arc::default(),
            thread: Mutex::default(),
            unwritten: Mutex::default(),
        }
    }

    /// Records a change, and starts the thread if needed.
    pub fn changed(&self) {
        let mut state = self.shared.state();
        if *state != FlusherState::Clean {
            return;
        }
        *state = FlusherState::Changed;
        drop(state);
        self.shared.told.notify_one();
        let mut thread = self.thread.lock().unpoisoned();
        if thread.is_none() {
            let (volume, known) = (Arc::clone(&self.volume), Arc::clone(&self.known));
            let shared = Arc::clone(&self.shared);
            let body = move || flush_until_ended(&volume, &known, &shared);
            match threads::spawn("forerun-flush", body) {
                Ok(started) => *thread = Some(started),
                Err(error) => tracing::warn!("changes wait for fsync and unmount: {error}"),
            }
        }
    }

    /// Stops the thread and commits a last time. Further calls do nothing.
    pub fn end(&self) {
        let before = mem::replace(&mut *self.shared.state(), FlusherState::Ended);
        if before == FlusherState::Ended {
            return;
        }
        self.shared.told.notify_one();
        let mut thread = self.thread.lock().unpoisoned();
        if let Some(thread) = thread.take() {
            let _what_it_did_is_done_again = thread.join();
        }
        if let Err(error) = self.volume.fs().finish() {
            *self.unwritten.lock().unpoisoned() = Some(error);
        }
    }

    /// Takes the error of the last commit, whose changes are lost.
    pub fn take_error(&self) -> Option<Error> {
        self.unwritten.lock().unpoisoned().take()
    }
}

/// Makes everything durable. Releases directories that were kept only for this commit.
pub fn commit(volume: &Volume, known: &Known) -> Result<(), Error> {
    let commit = known.reports.begin_commit();
    volume.fs().sync_all()?;
    for dir in known.reports.written(commit) {
        known.forgotten(dir, 0, |gone| volume.fs().forget(gone));
    }
    Ok(())
}

fn flush_until_ended(volume: &Volume, known: &Known, shared: &FlusherShared) {
    let mut was_full = false;
    let mut state = shared.state();
    loop {
        match *state {
            FlusherState::Ended => return,
            FlusherState::Clean => {
                state = shared.told.wait(state).unpoisoned();
            }
            FlusherState::Changed => {
                let ended = |state: &mut FlusherState| *state != FlusherState::Ended;
                let waited = shared.told.wait_timeout_while(state, INTERVAL, ended);
                state = waited.unpoisoned().0;
                if *state == FlusherState::Ended {
                    return;
                }
                *state = FlusherState::Clean;
                drop(state);
                let synced = commit(volume, known);
                let is_full = matches!(&synced, Err(error) if error.is_full());
                if let Err(error) = synced
                    && !(is_full && was_full)
                {
                    tracing::error!("{error}");
                }
                was_full = is_full;
                state = shared.state();
                // Try again, because space may be freed without another change.
                if is_full && *state == FlusherState::Clean {
                    *state = FlusherState::Changed;
                }
            }
        }
    }
}
