//! A monitor of a mount that is being filled, which does not keep the mount alive.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::serve::{Counts, Shared};

/// Counts of the kernel's requests so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Reads that sent an event.
    pub events: u64,
    /// Reads for which something had to be fetched.
    pub fetched: u64,
    /// Reads of what was here that waited until it was verified.
    pub unverified: u64,
    /// Reads that failed.
    pub failed: u64,
    /// The process that guards the mount, if there is one now.
    pub guard: Option<u32>,
}

impl Counts {
    /// Returns the present counts.
    pub fn asked(&self) -> Asked {
        let guard = self.guard.load(Ordering::Acquire);
        Asked {
            events: self.events.load(Ordering::Relaxed),
            fetched: self.fetched.load(Ordering::Relaxed),
            unverified: self.unverified.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            guard: u32::try_from(guard).ok().filter(|id| *id != 0),
        }
    }
}

/// A monitor of a mount, which works for as long as its [`OnDemand`](super::OnDemand) exists.
#[derive(Clone, Debug)]
pub struct FillMonitor {
    shared: Weak<Shared>,
    device: (u32, u32),
}

impl FillMonitor {
    pub(super) fn new(shared: &Arc<Shared>, device: (u32, u32)) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            device,
        }
    }

    /// Returns the counts of the kernel's requests so far; nothing once the mount is not filled any more.
    #[must_use]
    pub fn asked(&self) -> Option<Asked> {
        let shared = self.shared.upgrade()?;
        Some(shared.counts.asked())
    }

    /// Has no other process take the place of this one when it ends: reads of missing bytes fail then.
    pub fn is_last(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.is_last();
        }
    }

    /// Returns major and minor number of the filesystem, as the list of mounts has them.
    #[must_use]
    pub const fn device(&self) -> (u32, u32) {
        self.device
    }
}
