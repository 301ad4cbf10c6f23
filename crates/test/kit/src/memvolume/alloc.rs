//! Clusters: the free ones, and the extents that a list of clusters forms.

use std::ops::{ControlFlow, Range};

use forerun_io::{BlobId, u64_from, usize_from};
use forerun_vfs::{Error, Extent, Place, Result};

pub struct UsedClusters {
    used: Vec<bool>,
}

impl UsedClusters {
    pub fn new(count: u64) -> Self {
        Self {
            used: vec![false; usize_from(count)],
        }
    }

    pub fn count(&self) -> u64 {
        u64_from(self.used.len())
    }

    pub fn free(&self) -> u64 {
        u64_from(self.used.iter().filter(|used| !**used).count())
    }

    /// Extends `list` to `wanted` clusters. Changes nothing on failure.
    pub fn grow(&mut self, list: &mut Vec<u64>, wanted: u64) -> Result<()> {
        let missing = wanted.saturating_sub(u64_from(list.len()));
        if missing > self.free() {
            return Err(Error::NoSpace);
        }
        let free = self.used.iter_mut().enumerate().filter(|(_, used)| !**used);
        for (n, used) in free.take(usize_from(missing)) {
            *used = true;
            list.push(u64_from(n));
        }
        Ok(())
    }

    /// Frees everything after the first `wanted` clusters.
    pub fn shrink(&mut self, list: &mut Vec<u64>, wanted: u64) {
        for cluster in list.drain(usize_from(wanted).min(list.len())..) {
            self.used[usize_from(cluster)] = false;
        }
    }
}

/// Visits the stored extents of `range`, which `clusters` must cover.
pub fn visit(
    clusters: &[u64],
    cluster: u64,
    range: Range<u64>,
    visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut at = range.start;
    while at < range.end {
        let end = (at - at % cluster + cluster).min(range.end);
        let offset = clusters[usize_from(at / cluster)] * cluster + at % cluster;
        visit(Extent {
            logical: at..end,
            place: Place::Stored {
                blob: BlobId::IMAGE,
                offset,
            },
        })?;
        at = end;
    }
    ControlFlow::Continue(())
}
