//! The state that a cache shares with its blobs. It lives as long as the cache or any blob.
//!
//! Nothing here refers to the cache or the blobs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use forerun_io::Unpoisoned;

use crate::Result;
use crate::flusher::Flusher;
use crate::holder::Holder;
use crate::index::Index;
use crate::layout::Layout;
use crate::options::CacheOptions;

#[derive(Debug)]
pub(crate) struct CacheShared {
    pub(crate) layout: Layout,
    pub(crate) options: CacheOptions,
    pub(crate) flusher: Flusher,
    pub(crate) index: Mutex<Index>,
    /// Bytes stored since the last collection started.
    pub(crate) stored: AtomicU64,
    holder: OnceLock<Holder>,
    making_holder: Mutex<()>,
}

impl CacheShared {
    pub(crate) fn new(layout: Layout, options: CacheOptions, flusher: Flusher) -> Self {
        Self {
            layout,
            options,
            flusher,
            index: Mutex::default(),
            stored: AtomicU64::new(0),
            holder: OnceLock::new(),
            making_holder: Mutex::default(),
        }
    }

    pub(crate) fn holder(&self) -> Result<&Holder> {
        let _one_at_a_time = self.making_holder.lock().unpoisoned();
        if let Some(holder) = self.holder.get() {
            return Ok(holder);
        }
        let holder = Holder::new(&self.layout.holders())?;
        Ok(self.holder.get_or_init(|| holder))
    }

    /// Returns whether enough was stored since the last collection to start another one.
    pub(crate) fn gc_is_due(&self) -> bool {
        let limit = self.options.limit_bytes;
        let is_limited = limit < u64::MAX || self.options.keep_free > 0;
        is_limited && self.stored.load(Ordering::Relaxed) > (limit / 16).min(256 << 20)
    }
}
