//! The image or volume of a mount, and its counters.

use std::sync::{Arc, Weak};

use forerun_io::StatsSnapshot;

use crate::adapter_mut::CoreMut;
use crate::core::Core;
use crate::counts::RequestCounts;

#[derive(Debug)]
pub enum Served {
    Image(Arc<Core>),
    Volume(Arc<CoreMut>),
}

impl Served {
    pub fn stats(&self) -> StatsSnapshot {
        match self {
            Self::Image(core) => core.reader.observer().stats().snapshot(),
            Self::Volume(core) => core.volume.observer().stats().snapshot(),
        }
    }

    pub fn requests(&self) -> RequestCounts {
        match self {
            Self::Image(core) => core.counts.snapshot(),
            Self::Volume(core) => core.counts.snapshot(),
        }
    }
}

/// Reports on a mount without keeping it alive.
#[derive(Clone, Debug)]
pub struct Monitor {
    served: Watched,
}

#[derive(Clone, Debug)]
enum Watched {
    Image(Weak<Core>),
    Volume(Weak<CoreMut>),
}

impl Monitor {
    pub(crate) fn new(served: &Served) -> Self {
        let served = match served {
            Served::Image(core) => Watched::Image(Arc::downgrade(core)),
            Served::Volume(core) => Watched::Volume(Arc::downgrade(core)),
        };
        Self { served }
    }

    /// Returns the engine's counters and the request counts, `None` once the mount has ended.
    #[must_use]
    pub fn counters(&self) -> Option<(StatsSnapshot, RequestCounts)> {
        let served = match &self.served {
            Watched::Image(core) => Served::Image(core.upgrade()?),
            Watched::Volume(core) => Served::Volume(core.upgrade()?),
        };
        Some((served.stats(), served.requests()))
    }

    /// Returns the number of bytes in the caches. `None` for a writable volume, whose data is not
    /// cached, and once the mount has ended.
    #[must_use]
    pub fn cached_bytes(&self) -> Option<u64> {
        match &self.served {
            Watched::Image(core) => Some(core.upgrade()?.reader.cached_bytes()),
            Watched::Volume(_) => None,
        }
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for CoreMut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CoreMut").finish_non_exhaustive()
    }
}
