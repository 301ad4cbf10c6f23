use std::sync::Arc;

use forerun_io::{Weighed, WeighedCache, u64_from};
use forerun_vfs::{Error, NodeId, Result};

use crate::dir::Index;
use crate::header::Kind;
use crate::image::Image;

#[derive(Clone, Debug)]
pub enum Slot {
    Index(Arc<Index>),
    /// The directory is too large to index, or could not be read to its end. `first` is its first
    /// header.
    Large {
        first: u64,
    },
}

impl Weighed for Slot {
    fn weight(&self) -> u64 {
        match self {
            Self::Index(index) => u64_from(index.bytes) + 128,
            Self::Large { .. } => 64,
        }
    }
}

/// Recently used indexes, together within [`Limits::dir_index_bytes`](forerun_vfs::Limits). An
/// index that is being built is not counted until it is cached.
pub struct Indexes {
    /// Most bytes of one index.
    most: usize,
    cache: WeighedCache<NodeId, Slot>,
}

impl Indexes {
    pub fn new(budget: usize) -> Self {
        Self {
            // A quarter, so that one directory does not evict all others.
            most: budget / 4,
            cache: WeighedCache::new(budget),
        }
    }

    /// Returns the index of `dir`, and builds it if needed.
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
        assert!(indexes.cache.bytes() <= 64 << 20);
        assert!(indexes.cache.get(&NodeId(99)).is_some());
    }
}
