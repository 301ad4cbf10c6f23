//! Periodic writeback: makes changes durable when no program asks for it.
//!
//! A program that wants its bytes on the device calls fsync(2). For all others, everything is made
//! durable some seconds after a change. A machine that loses power later then loses seconds, and a
//! medium that is pulled out is marked clean.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use forerun_engine::Volume;
use forerun_io::Unpoisoned;
use forerun_sys::threads;
use forerun_vfs::Error;

use super::known::Known;

/// How long a change may wait.
const INTERVAL: Duration = Duration::from_secs(5);

/// The writeback thread and its state.
pub struct Flusher {
    volume: Arc<Volume>,
    known: Arc<Known>,
    shared: Arc<FlusherShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Why the last commit failed, until the mount reports it.
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
    /// Starts with the first change.
    pub fn new(volume: Arc<Volume>, known: Arc<Known>) -> Self {
        Self {
            volume,
            known,
            shared: Arc::default(),
            thread: Mutex::default(),
            unwritten: Mutex::default(),
        }
    }

    /// Records that something was changed, and starts the thread that commits it if there is none yet.
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

    /// Stops the thread, then makes everything durable for the last time. Further calls do nothing.
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

    /// Takes the error of the last commit: the changes that it should have written are lost.
    pub fn take_error(&self) -> Option<Error> {
        self.unwritten.lock().unpoisoned().take()
    }
}

/// Makes everything durable. Directories that were kept only until then are forgotten.
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
                // There may be room later, without another change.
                if is_full && *state == FlusherState::Clean {
                    *state = FlusherState::Changed;
                }
            }
        }
    }
}
