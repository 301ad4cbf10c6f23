//! Turns of requests, so that registries that do not answer hold up no request that needs none.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests of one kind that are worked on at once.
const AT_ONCE: usize = 64;
/// How long a layer waits for its turn to ask a registry before it is unpacked.
const PATIENCE: Duration = Duration::from_secs(2);

/// The use of a thread.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Files of the snapshotter.
    Files,
    /// Mounts of chains, which may wait for a server.
    Mounts,
}

/// Turns for each kind of request.
#[derive(Clone, Debug)]
pub struct Turns {
    files: Arc<Semaphore>,
    mounts: Arc<Semaphore>,
    registries: Arc<Semaphore>,
}

/// The right to use a thread; nothing is left of it when it is dropped.
pub type Turn = Option<OwnedSemaphorePermit>;

impl Turns {
    /// Threads for all that have a turn, and for the deletion of files.
    pub const THREADS: usize = 3 * AT_ONCE + 16;

    pub fn new() -> Self {
        let turns = || Arc::new(Semaphore::new(AT_ONCE));
        Self {
            files: turns(),
            mounts: turns(),
            registries: turns(),
        }
    }

    /// Waits for a turn.
    pub async fn of(&self, kind: Kind) -> Turn {
        let turns = match kind {
            Kind::Files => &self.files,
            Kind::Mounts => &self.mounts,
        };
        // They are never closed.
        Arc::clone(turns).acquire_owned().await.ok()
    }

    /// Waits a moment for a turn to ask a registry. Returns nothing where too many others wait for theirs.
    pub async fn to_ask(&self) -> Turn {
        let turn = Arc::clone(&self.registries).acquire_owned();
        tokio::time::timeout(PATIENCE, turn).await.ok()?.ok()
    }
}
