use std::fmt;

use forerun_io::{BlockGeometry, page_size};
use forerun_sys::memory_limit::{MemoryLimit, Mib, with_block_buffers};

/// Options for reading an image. The defaults suit a local image and the memory that the process
/// may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Whether to read in blocks of a page and merge requests. `false` is the legacy mode, for
    /// comparison: blocks of 1 KiB, one synchronous request each, no readahead.
    pub large_blocks: bool,
    /// Bytes to keep ahead of a sequential reader; 0 turns readahead off.
    pub readahead: u64,
    /// Most bytes in cached blocks, readahead included.
    pub cache: u64,
    /// Threads that read and decode ahead; 0 means one per CPU, or fewer if memory is scarce.
    pub threads: usize,
    /// Largest request to the source, in bytes.
    pub max_request: u64,
    /// Whether to read ahead, by guess, metadata that the driver cannot locate. This takes fewer
    /// round trips and more bytes, because it reads the data beside the metadata too.
    pub guess_metadata: bool,
}

/// Most memory that a thread of the pool takes: a block of 1 MiB, stored and decoded, its decoder,
/// and the allocator's memory for the thread.
const THREAD: u64 = 4 << 20;

impl Default for EngineOptions {
    fn default() -> Self {
        Self::within(MemoryLimit::of_process())
    }
}

impl EngineOptions {
    #[must_use]
    pub fn within(limit: &MemoryLimit) -> Self {
        Self {
            large_blocks: true,
            readahead: 8 << 20,
            cache: limit.block_cache(),
            threads: 0,
            max_request: 4 << 20,
            guess_metadata: true,
        }
    }

    #[must_use]
    pub fn geometry(&self, len: u64) -> BlockGeometry {
        if self.large_blocks {
            BlockGeometry::large(len, page_size(), self.max_request)
        } else {
            BlockGeometry::legacy(len)
        }
    }

    #[must_use]
    pub fn pool_threads(&self) -> usize {
        match self.threads {
            0 => MemoryLimit::of_process().threads(THREAD),
            n => n,
        }
    }

    /// Returns the most memory that blocks take: cached blocks, and buffers kept for reuse.
    #[must_use]
    pub const fn memory(&self) -> u64 {
        with_block_buffers(self.cache)
    }

    #[must_use]
    pub fn memory_use(&self) -> MemoryUse {
        MemoryUse {
            cache: self.cache,
            limit: MemoryLimit::of_process().clone(),
        }
    }

    /// Logs [`memory_use`](Self::memory_use), with a warning if the cache is too large for the
    /// process.
    pub fn log_memory_use(&self) {
        let used = self.memory_use();
        tracing::info!("memory: {used}");
        if used.exceeds_limit() {
            tracing::warn!(
                "cached blocks may take {}, which with all else is more than four fifths of {}: the \
                 process may be killed",
                Mib(used.cache),
                used.limit
            );
        }
    }
}

/// The memory for cached blocks, beside the limit of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    pub cache: u64,
    pub limit: MemoryLimit,
}

impl MemoryUse {
    /// Returns whether the caller asked for a cache that leaves too little for the rest.
    #[must_use]
    pub fn exceeds_limit(&self) -> bool {
        // The default cache never does, however small the limit.
        self.cache > EngineOptions::within(&self.limit).cache
            && self.limit.is_exceeded_by(with_block_buffers(self.cache))
    }
}

impl fmt::Display for MemoryUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cache, limit } = self;
        let why = match EngineOptions::within(limit).cache {
            default if default != *cache => "as asked for; the limit is",
            MemoryLimit::BLOCK_CACHE => "the default; the limit is",
            _ => "an eighth of",
        };
        write!(f, "{} for cached blocks, {why} {limit}", Mib(*cache))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_cache_is_an_eighth_of_a_small_memory() {
        for (limit, cache, text) in [
            (
                24 << 10,
                256,
                "256 MiB for cached blocks, the default; the limit is 24576 MiB by this machine",
            ),
            (
                128,
                16,
                "16 MiB for cached blocks, an eighth of 128 MiB by this machine",
            ),
        ] {
            let limit = MemoryLimit::of_machine(limit * MIB);
            let cache = cache * MIB;
            assert_eq!(EngineOptions::within(&limit).cache, cache);
            let used = MemoryUse { cache, limit };
            assert_eq!(used.to_string(), text);
            assert!(!used.exceeds_limit());
        }
    }

    #[test]
    fn a_cache_that_was_asked_for_may_exceed_the_limit() {
        let of = |cache: u64, limit: u64| MemoryUse {
            cache: cache * MIB,
            limit: MemoryLimit::of_machine(limit * MIB),
        };
        assert!(of(128, 128).exceeds_limit());
        assert!(!of(32, 128).exceeds_limit());
        assert!(!of(2, 16).exceeds_limit());
        assert!(of(64, 128).to_string().contains("as asked for"));
    }
}
