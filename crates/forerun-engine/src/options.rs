//! What a caller can set.

use forerun_io::{BlockGeometry, page_size};

/// How an image is read. The defaults suit a local image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// `true`: blocks as large as the page and merged requests. `false`: the legacy way, 1 KiB
    /// blocks, one synchronous request each, nothing ahead of the reader.
    pub large_blocks: bool,
    /// Bytes kept ahead of a sequential reader; 0 turns readahead off.
    pub readahead: u64,
    /// Bytes that cached blocks may hold, readahead included.
    pub cache: u64,
    /// Threads that read and decode ahead; 0 means one per CPU.
    pub threads: usize,
    /// Largest request to the source, in bytes.
    pub max_request: u64,
}

/// Default of [`EngineOptions::cache`] where memory is not scarce.
const CACHE: u64 = 256 << 20;

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            large_blocks: true,
            readahead: 8 << 20,
            cache: default_cache(),
            threads: 0,
            max_request: 4 << 20,
        }
    }
}

impl EngineOptions {
    /// The blocks and requests of a source of `len` bytes under these options.
    #[must_use]
    pub fn geometry(&self, len: u64) -> BlockGeometry {
        if self.large_blocks {
            BlockGeometry::large(len, page_size(), self.max_request)
        } else {
            BlockGeometry::legacy(len)
        }
    }

    /// Threads of the pool.
    #[must_use]
    pub fn pool_threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        }
    }
}

/// 256 MiB or an eighth of the memory, whichever is less.
fn default_cache() -> u64 {
    let info = rustix::system::sysinfo();
    let unit = u64::from(info.mem_unit.max(1));
    let memory = info.totalram.saturating_mul(unit);
    if memory == 0 {
        CACHE
    } else {
        CACHE.min(memory / 8)
    }
}
