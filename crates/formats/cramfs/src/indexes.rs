//! The directories used last, bounded in bytes.

use std::sync::Arc;

use forerun_io::u64_from;
use forerun_vfs::{Error, FileType, NodeId, Result};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::directory::Directory;
use crate::image::Image;

#[derive(Clone)]
struct ByBytes;

impl Weighter<NodeId, Arc<Directory>> for ByBytes {
    fn weight(&self, _dir: &NodeId, directory: &Arc<Directory>) -> u64 {
        directory.weight().saturating_add(64)
    }
}

/// Directories by node, together within [`Limits::dir_index_bytes`](forerun_vfs::Limits). The
/// largest that the format can hold takes 24 MiB. A directory that does not fit is read again at
/// each use.
pub struct Indexes {
    cache: Cache<NodeId, Arc<Directory>, ByBytes>,
}

impl Indexes {
    pub fn new(budget: usize) -> Self {
        let items = (budget / 4096).max(16);
        let weight = u64_from(budget);
        // One shard: a shard refuses an entry heavier than its share of the budget.
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
        Self { cache }
    }

    /// Returns the entries of `dir`, from memory or read now.
    ///
    /// # Errors
    /// `NotADirectory`, the errors of [`Image::inode`] and [`Directory::load`].
    pub fn get(&self, image: &Image, dir: NodeId) -> Result<Arc<Directory>> {
        if let Some(directory) = self.cache.get(&dir) {
            return Ok(directory);
        }
        let inode = image.inode(dir)?;
        if inode.kind != FileType::Directory {
            return Err(Error::NotADirectory);
        }
        let directory = Arc::new(Directory::load(image, dir, &inode)?);
        // Unreadable parts may be readable the next time.
        if !matches!(directory.damage, Some(Error::Io { .. })) {
            self.cache.insert(dir, Arc::clone(&directory));
        }
        Ok(directory)
    }
}
