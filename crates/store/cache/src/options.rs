//! Settings of a cache: its size, how far stored chunks are trusted, and when they are made
//! durable.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheOptions {
    /// Disk space that the cache may allocate, in bytes. Images in use are never evicted, not even
    /// in part, and may exceed it.
    pub limit_bytes: u64,
    /// Bytes that must stay free on the disk; the cache uses less if needed. With 0, the cache may
    /// fill the disk.
    pub keep_free: u64,
    /// Whether to ignore the state file when a blob is opened: every chunk is hashed again before
    /// it counts as present. This detects disks that lose synced data, and costs one read and one
    /// hash of each chunk.
    pub recheck: bool,
    /// Whether to serve chunks that the state file calls verified without hashing them at their
    /// first use in this process.
    pub trust: bool,
    /// Number of stored bytes at which the cache syncs before [`flush_after`](Self::flush_after).
    pub flush_bytes: u64,
    /// Longest time until stored chunks are made durable. Until then a kill does not lose them, but
    /// a power cut may.
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
    #[must_use]
    pub fn with_limit(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            ..Self::default()
        }
    }
}
