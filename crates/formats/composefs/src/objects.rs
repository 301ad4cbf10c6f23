//! Resolves blobs for drivers in an object store or a base directory.

use std::fs::File;
use std::io;
use std::sync::Arc;

use forerun_io::{FileSource, ReadAt};
use forerun_vfs::{BlobName, ResolveBlob};

use crate::object_name::Payload;
use crate::store::ObjectStore;

/// Opens the objects that an image names. In a base directory, also opens other files.
#[derive(Debug)]
pub struct Objects {
    store: ObjectStore,
    is_base: bool,
}

impl Objects {
    /// Returns a resolver for the objects of `store`.
    #[must_use]
    pub const fn new(store: ObjectStore) -> Self {
        let is_base = false;
        Self { store, is_base }
    }

    /// Returns a resolver for all files below a directory.
    #[must_use]
    pub const fn below(store: ObjectStore) -> Self {
        let is_base = true;
        Self { store, is_base }
    }
}

impl ResolveBlob for Objects {
    fn open(&self, blob: &BlobName) -> io::Result<Arc<dyn ReadAt>> {
        match self.open_file(blob)? {
            Some(file) => Ok(Arc::new(FileSource::from_file(file)?)),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn open_file(&self, blob: &BlobName) -> io::Result<Option<File>> {
        let BlobName::Object { path } = blob else {
            return Ok(None);
        };
        let refused = |reason| Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        match Payload::parse(path) {
            Some(Payload::Object(name)) => self.store.open_path(name.path().as_bytes()).map(Some),
            Some(Payload::Path(path)) if self.is_base => self.store.open_path(&path).map(Some),
            Some(Payload::Path(_)) => refused(
                "this is not the name of an object; only a base directory has files at other paths",
            ),
            None => refused("this path leads out of the directory"),
        }
    }
}
