//! Cleans up when Ctrl-C ends the program: partial outputs, the demo's directory and mounts.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once};
use std::time::Duration;

use forerun_io::Unpoisoned;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

type Action = Box<dyn FnOnce() + Send>;

static ACTIONS: Mutex<Vec<(u64, Action)>> = Mutex::new(Vec::new());
static WATCH: Once = Once::new();
static DEFERRED: Mutex<Deferred> = Mutex::new(Deferred::Nothing);

/// Whether the signal thread starts later than the first action.
enum Deferred {
    Nothing,
    Asked,
    Signals(Signals),
}

/// Defers the thread until [`resume`], because a thread that starts before the process enters its
/// sandbox would be outside it.
pub fn defer() {
    *DEFERRED.lock().unpoisoned() = Deferred::Asked;
}

/// Starts the deferred thread, if there is an action to run on a signal.
pub fn resume() {
    let mut deferred = DEFERRED.lock().unpoisoned();
    if let Deferred::Signals(signals) = std::mem::replace(&mut *deferred, Deferred::Nothing) {
        told(watch(signals));
    }
}

/// A guard. While it exists, its action runs when the program is interrupted.
#[derive(Debug)]
pub struct OnInterrupt {
    id: u64,
}

impl OnInterrupt {
    /// Runs `action` on SIGINT, SIGTERM or SIGHUP, newest action first. The action must not wait
    /// for anything that the interrupted work holds.
    pub fn new(action: impl FnOnce() + Send + 'static) -> Self {
        WATCH.call_once(|| {
            // A signal that arrives before the thread runs is kept for it.
            let mut deferred = DEFERRED.lock().unpoisoned();
            let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
            told(match &mut *deferred {
                Deferred::Nothing => signals.and_then(watch),
                deferred @ (Deferred::Asked | Deferred::Signals(_)) => {
                    signals.map(|signals| *deferred = Deferred::Signals(signals))
                }
            });
        });
        let mut actions = ACTIONS.lock().unpoisoned();
        let id = actions.last().map_or(0, |(id, _)| id + 1);
        actions.push((id, Box::new(action)));
        Self { id }
    }
}

impl Drop for OnInterrupt {
    fn drop(&mut self) {
        let mut actions = ACTIONS.lock().unpoisoned();
        actions.retain(|(id, _)| *id != self.id);
    }
}

/// Time that interrupted work has to end by itself. A read from a server that is gone takes longer.
const GRACE: Duration = Duration::from_secs(5);

/// A guard for work that ends by itself when the program is interrupted, and reports its progress.
pub struct Graceful {
    guard: Option<OnInterrupt>,
    stop: Arc<AtomicBool>,
    ended: Arc<(Mutex<bool>, Condvar)>,
}

impl Graceful {
    /// Creates a guard. A signal sets `stop`, and ends the process once the guard is dropped, at
    /// the latest after five seconds.
    pub fn new(stop: Arc<AtomicBool>) -> Self {
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let guard = OnInterrupt::new({
            let (stop, ended) = (Arc::clone(&stop), Arc::clone(&ended));
            move || {
                stop.store(true, Ordering::Relaxed);
                let (ended, changed) = &*ended;
                let ended = ended.lock().unpoisoned();
                // The process ends in either case.
                drop(changed.wait_timeout_while(ended, GRACE, |ended| !*ended));
            }
        });
        Self {
            guard: Some(guard),
            stop,
            ended,
        }
    }
}

impl Drop for Graceful {
    fn drop(&mut self) {
        let (ended, changed) = &*self.ended;
        *ended.lock().unpoisoned() = true;
        changed.notify_all();
        if self.stop.load(Ordering::Relaxed) {
            // The thread that got the signal ends the process.
            loop {
                std::thread::park();
            }
        }
        drop(self.guard.take());
    }
}

fn told(watching: io::Result<()>) {
    if let Err(error) = watching {
        tracing::warn!("signals cannot be watched: {error}");
    }
}

fn watch(mut signals: Signals) -> io::Result<()> {
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                // Stays locked, so that the interrupted work cannot replace what is being cleaned
                // up.
                let mut actions = ACTIONS.lock().unpoisoned();
                while let Some((_, action)) = actions.pop() {
                    action();
                }
                // Dies of the signal, so that a shell that runs a script knows to stop.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        })?;
    Ok(())
}
