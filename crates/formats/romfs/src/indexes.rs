//! The indexes of recently used directories, bounded in bytes.

use std::sync::Arc;

use forerun_io::u64_from;
use forerun_vfs::{Error, NodeId, Result};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::dir::Index;
use crate::header::Kind;
use crate::image::Image;

/// The state of a directory's index.
#[derive(Clone, Debug)]
pub enum Slot {
    /// The whole index.
    Index(Arc<Index>),
    /// The directory is too large to index, or could not be read to its end; its first header.
    Large { first: u64 },
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<NodeId, Slot> for ByBytes {
    fn weight(&self, _dir: &NodeId, slot: &Slot) -> u64 {
        match slot {
            Slot::Index(index) => u64_from(index.bytes).saturating_add(128),
            Slot::Large { .. } => 64,
        }
    }
}

/// Indexes by directory, together within [`Limits::dir_index_bytes`](forerun_vfs::Limits). An index
/// that is being built is not counted until it is kept.
pub struct Indexes {
    /// Most bytes of one index.
    most: usize,
    cache: Cache<NodeId, Slot, ByBytes>,
}

impl Indexes {
    pub fn new(budget: usize) -> Self {
        let items = (budget / 4096).max(16);
        let weight = u64_from(budget);
        // One shard: a shard refuses an entry heavier than its share of the budget, and a refused
        // directory would be read at each lookup.
        let options = OptionsBuilder::new()
            .shards(1)
            .estimated_items_capacity(items)
            .weight_capacity(weight)
            .build();
        let cache = match options {
            Ok(options) => Cache::with_options(
                options,
                ByBytes,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
            // Only a missing capacity is an error, and both are there.
            Err(_) => Cache::with_weighter(items, weight, ByBytes),
        };
        // A quarter: one directory must not evict all others.
        let most = budget / 4;
        Self { most, cache }
    }

    /// Returns the index of `dir`. Reads the directory if it has none.
    ///
    /// # Errors
    /// `NotADirectory`, and the errors of [`Image::node`].
    pub fn get(&self, image: &Image, dir: NodeId) -> Result<Slot> {
        if let Some(slot) = self.cache.get(&dir) {
            return Ok(slot);
        }
        let Kind::Directory { first } = image.node(dir)?.kind else {
            return Err(Error::NotADirectory);
        };
        let slot = match Index::build(image, dir, first, self.most) {
            Ok(Some(index)) => Slot::Index(Arc::new(index)),
            Ok(None) => Slot::Large { first },
            // Without an index, the entries before the unreadable one can still be listed. The
            // failure is not remembered, because it may not recur.
            Err(Error::Io { .. }) => return Ok(Slot::Large { first }),
            Err(error) => return Err(error),
        };
        self.cache.insert(dir, slot.clone());
        Ok(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_as_large_as_may_be_is_kept() {
        let indexes = Indexes::new(64 << 20);
        let index = |bytes| {
            let mut index = Index::default();
            index.bytes = bytes;
            Slot::Index(Arc::new(index))
        };
        for dir in 0..3 {
            indexes.cache.insert(NodeId(dir), index(indexes.most));
        }
        assert!((0..3).all(|dir| indexes.cache.get(&NodeId(dir)).is_some()));
        // More indexes than the budget holds evict others.
        for dir in 0..100 {
            indexes.cache.insert(NodeId(dir), index(indexes.most));
        }
        assert!(indexes.cache.weight() <= 64 << 20);
        assert!(indexes.cache.get(&NodeId(99)).is_some());
    }
}
