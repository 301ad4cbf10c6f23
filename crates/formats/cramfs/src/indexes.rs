use std::sync::Arc;

use forerun_io::WeighedCache;
use forerun_vfs::{Error, FileType, NodeId, Result};

use crate::directory::Directory;
use crate::image::Image;

/// Recently used directories, together within [`Limits::dir_index_bytes`](forerun_vfs::Limits). The
/// largest directory that the format can hold takes 24 MiB. A directory that does not fit is read
/// again at each use.
pub struct Indexes {
    cache: WeighedCache<NodeId, Arc<Directory>>,
}

impl Indexes {
    pub fn new(budget: usize) -> Self {
        Self {
            cache: WeighedCache::new(budget),
        }
    }

    /// Returns the entries of `dir`, and reads them if needed.
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
