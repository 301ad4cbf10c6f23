//! What must not be left behind when Ctrl-C ends the program: half-written outputs, the demo's
//! directory and mount.

use std::io;
use std::sync::{Mutex, Once, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

type Action = Box<dyn FnOnce() + Send>;

static ACTIONS: Mutex<Vec<(u64, Action)>> = Mutex::new(Vec::new());
static WATCH: Once = Once::new();

/// As long as it lives, its action is done when the program is interrupted.
#[derive(Debug)]
pub struct OnInterrupt {
    id: u64,
}

impl OnInterrupt {
    /// Has `action` done on SIGINT, SIGTERM or SIGHUP; the newest action first. Must not wait for
    /// what the interrupted work holds.
    pub fn new(action: impl FnOnce() + Send + 'static) -> Self {
        WATCH.call_once(|| {
            if let Err(error) = watch() {
                tracing::warn!("signals cannot be watched: {error}");
            }
        });
        let mut actions = ACTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let id = actions.last().map_or(0, |(id, _)| id + 1);
        actions.push((id, Box::new(action)));
        Self { id }
    }
}

impl Drop for OnInterrupt {
    fn drop(&mut self) {
        let mut actions = ACTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        actions.retain(|(id, _)| *id != self.id);
    }
}

fn watch() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                // Kept locked: the work that was interrupted must not take the place of what is
                // being cleaned up.
                let mut actions = ACTIONS.lock().unwrap_or_else(PoisonError::into_inner);
                while let Some((_, action)) = actions.pop() {
                    action();
                }
                // Dies of the signal, so that a shell that runs a script knows to stop.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        })?;
    Ok(())
}
