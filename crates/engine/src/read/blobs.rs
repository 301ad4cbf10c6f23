//! The blobs besides the image: opened once, when first wanted, and kept open.
//!
//! An image may name more blobs than a process may have files open. So blobs that were not used
//! lately are closed when there are too many, and opened again when wanted. A failure to open is
//! not remembered.

use std::sync::Arc;

use forerun_io::{BlobId, Counted, Observer};
use forerun_vfs::{EncodedBlock, FileSystem, Result};
use quick_cache::sync::Cache;

/// Blobs kept open at the most: a quarter of the descriptors that a process may have by default.
const OPEN: usize = 256;

/// The blobs of one image.
pub struct Blobs {
    fs: Arc<dyn FileSystem>,
    open: Cache<BlobId, Counted>,
}

impl Blobs {
    /// Creates the table of the blobs that `fs` names.
    pub fn new(fs: Arc<dyn FileSystem>) -> Self {
        Self {
            fs,
            open: Cache::new(OPEN),
        }
    }

    /// Returns the blob, and opens it unless it is open or another thread is opening it.
    pub fn get(&self, blob: BlobId, observer: &Arc<Observer>) -> Result<Counted> {
        self.open.get_or_insert_with(&blob, || {
            let source = self.fs.blob(blob)?;
            Ok(Counted::new(source, blob, Arc::clone(observer)))
        })
    }

    /// Returns the bytes that a block refers to.
    pub fn history(&self, block: &EncodedBlock) -> Result<Vec<u8>> {
        match block.codec.refers_back() {
            true => self.fs.history(block),
            false => Ok(Vec::new()),
        }
    }

    /// Verifies the decoded bytes of a block, where the driver can.
    pub fn verify(&self, block: &EncodedBlock, decoded: &[u8]) -> Result<()> {
        self.fs.verify(block, decoded)
    }

    /// Verifies the stored bytes of a block, where the driver can.
    pub fn verify_stored(&self, block: &EncodedBlock, stored: &[u8]) -> Result<()> {
        self.fs.verify_stored(block, stored)
    }

    /// Returns the name of the image that a blob belongs to, where a tree is made of several images.
    pub fn image_of(&self, blob: BlobId) -> Option<Arc<str>> {
        self.fs.image_of(blob)
    }

    /// Closes the blob if the driver says that it must be opened again.
    pub fn refresh(&self, blob: BlobId) {
        if self.open.peek(&blob).is_some() && !self.fs.is_current(blob) {
            self.open.remove(&blob);
        }
    }
}
