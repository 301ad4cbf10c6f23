//! Discards free clusters.

use std::ops::Range;

use forerun_vfs::{Error, Result};

use crate::change::Stopped;
use crate::ondisk::FIRST_CLUSTER;
use crate::session::Session;

impl Session<'_> {
    /// Discards free clusters inside `range` of the volume, in runs of at least `min_len` bytes,
    /// and returns the number of discarded bytes. Skips clusters that the next commit frees.
    pub fn trim(&mut self, range: Range<u64>, min_len: u64) -> Result<u64> {
        let store = self.store.ok_or_else(|| Stopped::Failed.error())?;
        let boot = &self.volume.boot;
        let size = boot.cluster_size();
        let cluster = |offset: u64, up: bool| {
            let inside = offset.saturating_sub(boot.heap_offset);
            let index = if up {
                inside.div_ceil(size)
            } else {
                inside / size
            };
            let index =
                u32::try_from(index).map_or(boot.clusters, |index| index.min(boot.clusters));
            index + FIRST_CLUSTER
        };
        let clusters = cluster(range.start, true)..cluster(range.end, false);
        let mut discarded = 0_u64;
        let mut visit = |first: u32, count: u32| {
            let (start, len) = (boot.cluster_at(first), u64::from(count) * size);
            if len < min_len.max(1) {
                return Ok(());
            }
            let done = store.back.device().discard(start..start + len);
            if done.map_err(|error| Error::write(start, 0, error))? {
                discarded += len
            } else {
                return Err(Error::Unsupported("discarding on this device".into()));
            }
            Ok(())
        };
        self.allocator()?.free_runs(clusters, &mut visit)?;
        Ok(discarded)
    }
}
