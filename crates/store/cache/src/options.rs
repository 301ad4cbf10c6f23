//! Options of a cache.

use std::time::Duration;

/// Options of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheOptions {
    /// Bytes on disk, as allocated, that the cache may take. Images in use are not evicted, not even in
    /// part, and may take more.
    pub limit_bytes: u64,
    /// Bytes that have to stay free on the disk: the cache takes less where they would not. 0 for a cache
    /// that may fill it.
    pub keep_free: u64,
    /// Whether the state is ignored when a blob is opened: every chunk is hashed again before it counts as
    /// present. Catches disks that lie; costs one read and one hash of each chunk.
    pub recheck: bool,
    /// Whether chunks that the state calls verified are served without being hashed at their first use in
    /// this process.
    pub trust: bool,
    /// Stored bytes that make the cache sync without waiting for [`flush_after`](Self::flush_after).
    pub flush_bytes: u64,
    /// How long stored chunks may wait until they are made durable. A kill does not lose them, a power cut
    /// may.
    pub flush_after: Duration,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            limit_bytes: u64::MAX,
            keep_free: 0,
            recheck: false,
            trust: false,
            flush_bytes: 64 << 20,
            flush_after: Duration::from_secs(2),
        }
    }
}

impl CacheOptions {
    /// Returns the defaults with a limit.
    #[must_use]
    pub fn with_limit(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            ..Self::default()
        }
    }
}
