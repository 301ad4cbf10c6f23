//! Limits of the cache: the bytes that it may use, and the bytes that must stay free on its disk.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::cache::Cache;
use crate::evict::remove_temporary;
use crate::options::CacheOptions;
use crate::{CacheError, Result};

/// The default limit is 1/10 of the filesystem.
const SHARE: u64 = 10;
/// By default, 1/20 of the filesystem stays free.
const FREE: u64 = 20;

impl CacheOptions {
    /// Returns options with the default limit for a cache in `dir`, which need not exist yet: a
    /// tenth of its filesystem, or less to keep a twentieth free.
    ///
    /// # Errors
    /// [`CacheError::Io`] if the size of the filesystem cannot be read.
    pub fn share_of_disk(dir: &Path) -> Result<Self> {
        let there = dir.ancestors().find(|path| path.exists());
        let there = there.filter(|path| *path != Path::new(""));
        let place = there.unwrap_or(Path::new("."));
        let disk = rustix::fs::statvfs(place)
            .map_err(|error| CacheError::io("look at", place)(error.into()))?;
        let total = disk.f_blocks.saturating_mul(disk.f_frsize);
        Ok(Self {
            limit_bytes: total / SHARE,
            keep_free: total / FREE,
            ..Self::default()
        })
    }
}

impl Cache {
    /// Removes temporary blobs that killed processes left behind, and evicts blobs if the cache is
    /// over its limit. If there is nothing to do, this costs two file lookups for each blob.
    ///
    /// # Errors
    /// [`CacheError::Io`] if the directory cannot be read.
    pub fn tidy(&self) -> Result<()> {
        let layout = &self.shared.layout;
        for dir in layout.blob_dirs()? {
            remove_temporary(layout, &dir);
        }
        let used = self.used()?;
        if used > self.target(used) {
            self.gc()?;
        }
        Ok(())
    }

    /// Returns the most bytes that one image may use if all others are evicted for it.
    ///
    /// # Errors
    /// [`CacheError::Io`] if the directory cannot be read.
    pub fn capacity(&self) -> Result<u64> {
        let (layout, options) = (&self.shared.layout, &self.shared.options);
        let blobs = layout.blobs();
        let disk = rustix::fs::statvfs(&blobs)
            .map_err(|error| CacheError::io("look at", &blobs)(error.into()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let room = self
            .used()?
            .saturating_add(free.saturating_sub(options.keep_free));
        Ok(options.limit_bytes.min(room))
    }

    /// Returns the disk space that the data files use.
    fn used(&self) -> Result<u64> {
        let dirs = self.shared.layout.blob_dirs()?;
        let data = dirs
            .iter()
            .map(|dir| fs::symlink_metadata(dir.join("data")));
        Ok(data.flatten().map(|data| data.blocks() * 512).sum())
    }

    /// Returns how many bytes the cache may use, given that it uses `used` bytes now.
    pub(crate) fn target(&self, used: u64) -> u64 {
        let options = &self.shared.options;
        let mut target = options.limit_bytes;
        if options.keep_free > 0
            && let Ok(disk) = rustix::fs::statvfs(self.shared.layout.blobs())
        {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            target = target.min(used.saturating_sub(options.keep_free.saturating_sub(free)));
        }
        target
    }
}
