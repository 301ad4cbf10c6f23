//! The blobs beside the image: opened at their first use, and kept open.
//!
//! An image may name more blobs than a process may have files open. So if too many are open, the
//! least recently used are closed, and opened again when wanted. A failure to open is not
//! remembered.

use std::sync::Arc;

use forerun_io::{BlobId, Counted, Observer};
use forerun_vfs::{Capabilities, FileSystem, Result};
use quick_cache::sync::Cache;

/// Most blobs kept open: a quarter of the default limit of descriptors of a process.
const OPEN: usize = 256;

pub struct BlobTable {
    fs: Arc<dyn FileSystem>,
    open: Cache<BlobId, Counted>,
}

impl BlobTable {
    pub fn new(fs: Arc<dyn FileSystem>) -> Self {
        Self {
            fs,
            open: Cache::new(OPEN),
        }
    }

    /// Returns the blob. Opens it unless it is open or another thread is opening it.
    pub fn get(&self, blob: BlobId, observer: &Arc<Observer>) -> Result<Counted> {
        self.open.get_or_insert_with(&blob, || {
            let source = self.fs.blob(blob)?;
            Ok(Counted::new(source, blob, Arc::clone(observer)))
        })
    }

    pub fn capabilities(&self) -> Capabilities<'_> {
        self.fs.capabilities()
    }

    /// Closes the blob if the driver says that it must be opened again.
    pub fn refresh(&self, blob: BlobId) {
        if let Some(objects) = self.fs.capabilities().objects
            && self.open.peek(&blob).is_some()
            && !objects.is_current(blob)
        {
            self.open.remove(&blob);
        }
    }
}
