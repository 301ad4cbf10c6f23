//! A bounded cache with single-flight loads: concurrent requests for a block load it once.

use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::{Cache, DefaultLifecycle, GuardResult};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::{BlobId, u64_from, wait};

/// Identifies a block: where its stored form starts, and how much of it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    pub blob: BlobId,
    /// Offset of the first stored byte.
    pub offset: u64,
    /// Number of decoded bytes that are wanted, because different prefixes of one stream are
    /// different blocks. Zero for bytes that are not encoded, or if the offset alone identifies the
    /// block.
    pub decoded: u32,
}

impl BlockKey {
    /// Creates the key of a block that its offset alone identifies.
    #[must_use]
    pub const fn at(blob: BlobId, offset: u64) -> Self {
        Self {
            blob,
            offset,
            decoded: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The block was cached, or another thread loaded it meanwhile.
    Hit,
    Loaded,
}

/// Shards of the underlying cache. Few, because an entry heavier than a shard's share of the budget
/// is not cached at all.
const SHARDS: usize = 4;

/// A loaded block, or the error of a failed load, which is held only until all waiting threads have
/// taken it.
type Slot<V, E> = Result<V, E>;

#[derive(Clone, Copy)]
struct ByLength;

impl<V: Deref<Target = [u8]>, E> Weighter<BlockKey, Slot<V, E>> for ByLength {
    fn weight(&self, _key: &BlockKey, slot: &Slot<V, E>) -> u64 {
        // The constant stands for the entry itself, so that a flood of tiny blocks is bounded too.
        64 + slot.as_ref().map_or(0, |block| u64_from(block.len()))
    }
}

type Guarded<'c, V, E> =
    GuardResult<'c, BlockKey, Slot<V, E>, ByLength, DefaultHashBuilder, Life<V, E>>;
type Life<V, E> = DefaultLifecycle<BlockKey, Slot<V, E>>;

/// A cache of blocks, bounded in bytes. `V` is a handle on a block, cheap to clone.
///
/// At most one load per key is in flight; other threads that want the block wait for it. The error
/// of a failed load goes to all threads that waited, and is not cached: the next lookup loads
/// again.
pub struct BlockCache<E, V = Arc<[u8]>> {
    cache: Cache<BlockKey, Slot<V, E>, ByLength>,
}

impl<E, V> fmt::Debug for BlockCache<E, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache").finish_non_exhaustive()
    }
}

impl<E: Clone, V: Clone + Deref<Target = [u8]>> BlockCache<E, V> {
    /// Creates a cache of at most `budget` bytes, for blocks of about `typical` bytes.
    #[must_use]
    pub fn new(budget: u64, typical: u64) -> Self {
        let items = crate::usize_from(budget / typical.max(1)).clamp(16, 1 << 20);
        let options = OptionsBuilder::new()
            .estimated_items_capacity(items)
            .weight_capacity(budget)
            .shards(SHARDS)
            .build();
        let cache = match options {
            Ok(options) => Cache::with_options(
                options,
                ByLength,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
            // Unreachable, because both capacities are given; the plain constructor does the same.
            Err(_) => Cache::with_weighter(items, budget, ByLength),
        };
        Self { cache }
    }

    #[must_use]
    pub fn get(&self, key: BlockKey) -> Option<V> {
        self.cache.get(&key)?.ok()
    }

    /// Returns whether the block is cached, without counting as a use of it.
    #[must_use]
    pub fn contains(&self, key: BlockKey) -> bool {
        self.cache.contains_key(&key)
    }

    /// Returns the block, loaded if needed. If another thread is loading it, this call waits when
    /// the rules of [`wait`] allow that, and otherwise loads the block itself.
    ///
    /// # Errors
    /// The error of the load, whichever thread ran it. The error of a thread that may not wait
    /// affects only that thread.
    pub fn get_or_load(
        &self,
        key: BlockKey,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<(V, Lookup), E> {
        match self.value_or_guard(key) {
            GuardResult::Value(slot) => Ok((slot?, Lookup::Hit)),
            GuardResult::Guard(guard) => {
                // If `load` panics, the guard is dropped, and one of the waiting threads loads
                // instead.
                let slot = load();
                let failed = slot.is_err();
                if failed && wait::was_refused() {
                    drop(guard);
                    return Ok((slot?, Lookup::Loaded));
                }
                let kept = guard.insert(slot.clone()).is_ok();
                if failed && kept {
                    self.cache.remove_if(&key, |slot| slot.is_err());
                }
                Ok((slot?, Lookup::Loaded))
            }
            // This thread may not wait for the thread that loads.
            GuardResult::Timeout => Ok((load()?, Lookup::Loaded)),
        }
    }

    /// Returns the block, or a guard that obliges this thread to load it. Waits in slices if a rule
    /// is in force.
    fn value_or_guard(&self, key: BlockKey) -> Guarded<'_, V, E> {
        if !wait::is_ruled() {
            return self.cache.get_value_or_guard(&key, None);
        }
        // An attempt does not wait but loads for itself, which succeeds if the source has the
        // bytes.
        let may_wait = || !wait::is_attempt() && wait::allowed().is_ok();
        let mut slice = Duration::ZERO;
        loop {
            match self.cache.get_value_or_guard(&key, Some(slice)) {
                GuardResult::Timeout if may_wait() => slice = wait::SLICE,
                found => return found,
            }
        }
    }

    /// Inserts a block that was read along with another block, unless it is cached.
    pub fn offer(&self, key: BlockKey, block: V) {
        if !self.cache.contains_key(&key) {
            self.cache.insert(key, Ok(block));
        }
    }

    pub fn remove(&self, key: BlockKey) {
        self.cache.remove(&key);
    }

    /// Returns how many bytes the cache holds, including a fixed overhead per entry.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.cache.weight()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn key(offset: u64) -> BlockKey {
        BlockKey::at(BlobId::IMAGE, offset)
    }

    #[test]
    fn one_load_serves_all_threads_that_ask() {
        let cache = BlockCache::<String>::new(1 << 20, 4096);
        let (loads, barrier) = (AtomicU32::new(0), Barrier::new(8));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    let (block, _) = cache
                        .get_or_load(key(7), || {
                            loads.fetch_add(1, Ordering::Relaxed);
                            Ok(vec![7; 4096].into())
                        })
                        .unwrap();
                    assert_eq!(block[0], 7);
                });
            }
        });
        assert_eq!(loads.into_inner(), 1);
    }

    #[test]
    fn a_failed_load_is_not_kept() {
        let cache = BlockCache::<String>::new(1 << 20, 4096);
        let error = cache.get_or_load(key(1), || Err("no".into())).unwrap_err();
        assert_eq!(error, "no");
        assert!(cache.get(key(1)).is_none() && !cache.contains(key(1)));
        let (_, lookup) = cache.get_or_load(key(1), || Ok(vec![1].into())).unwrap();
        assert_eq!(lookup, Lookup::Loaded);
    }

    #[test]
    fn a_thread_that_may_not_wait_neither_waits_nor_fails_others() {
        let cache = BlockCache::<String>::new(1 << 20, 4096);
        let load = |text: &str| cache.get_or_load(key(1), || Err(text.into()));
        // The failed attempt must not reach a thread that waits for the same block.
        let refused = wait::attempt(|| {
            cache.get_or_load(key(1), || {
                let refused = wait::allowed().map_err(|error| error.to_string());
                refused.map(|()| vec![1].into())
            })
        });
        assert!(refused.is_none() && cache.get(key(1)).is_none());
        let outer = cache.get_or_load(key(1), || {
            std::thread::scope(|scope| {
                let attempt = scope.spawn(|| wait::attempt(|| load("its own")));
                let error = attempt.join().unwrap().unwrap().unwrap_err();
                assert_eq!(error, "its own");
                let stop = Arc::new(wait::Stop::default());
                stop.set();
                let stopped = scope.spawn(move || wait::until(&stop, || load("stopped")));
                assert_eq!(stopped.join().unwrap().unwrap_err(), "stopped");
            });
            Ok(vec![7].into())
        });
        assert_eq!(outer.unwrap().0[..], [7]);
        assert_eq!(cache.get(key(1)).unwrap()[..], [7]);
    }

    #[test]
    fn stays_inside_its_budget() {
        let cache = BlockCache::<String>::new(1 << 20, 4096);
        for n in 0..10_000 {
            cache
                .get_or_load(key(n), || Ok(vec![0; 4096].into()))
                .unwrap();
            assert!(cache.bytes() <= 1 << 20, "{} after {n}", cache.bytes());
        }
    }

    #[test]
    fn a_block_too_heavy_to_keep_is_still_given() {
        let cache = BlockCache::<String>::new(1024, 1024);
        let (block, _) = cache
            .get_or_load(key(0), || Ok(vec![9; 4096].into()))
            .unwrap();
        assert_eq!(block.len(), 4096);
    }
}
