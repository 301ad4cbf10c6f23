//! Limits concurrent requests by kind, so that an unresponsive registry does not block requests
//! that need no registry.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const AT_ONCE: usize = 64;
/// How long a layer waits for a turn to contact a registry. After that it is unpacked.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Files,
    /// Mounting chains, which may wait for a server.
    Mounts,
}

#[derive(Clone, Debug)]
pub struct Turns {
    files: Arc<Semaphore>,
    mounts: Arc<Semaphore>,
    registries: Arc<Semaphore>,
}

/// Permission to use a thread, released when dropped.
pub type Turn = Option<OwnedSemaphorePermit>;

impl Turns {
    /// Number of threads: enough for all turns and for deleting files.
    pub const THREADS: usize = 3 * AT_ONCE + 16;

    pub fn new() -> Self {
        let turns = || Arc::new(Semaphore::new(AT_ONCE));
        Self {
            files: turns(),
            mounts: turns(),
            registries: turns(),
        }
    }

    pub async fn of(&self, kind: Kind) -> Turn {
        let turns = match kind {
            Kind::Files => &self.files,
            Kind::Mounts => &self.mounts,
        };
        // The semaphores are never closed.
        Arc::clone(turns).acquire_owned().await.ok()
    }

    /// Waits up to `PATIENCE` for a turn to contact a registry. Returns `None` on timeout.
    pub async fn to_ask(&self) -> Turn {
        let turn = Arc::clone(&self.registries).acquire_owned();
        tokio::time::timeout(PATIENCE, turn).await.ok()?.ok()
    }
}
