//! An object store as the resolver of blobs for drivers.

use std::fs::File;
use std::io;
use std::sync::Arc;

use forerun_io::{FileSource, ReadAt};
use forerun_vfs::{BlobName, ResolveBlob};

use crate::object_name::ObjectName;
use crate::store::ObjectStore;

/// Opens the objects that an image names, and nothing else.
#[derive(Debug)]
pub struct Objects {
    store: ObjectStore,
}

impl Objects {
    /// Creates a resolver for the objects of `store`.
    #[must_use]
    pub const fn new(store: ObjectStore) -> Self {
        Self { store }
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
        match ObjectName::parse(path) {
            Some(name) => self.store.open_named(&name).map(Some),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "this is not the name of an object",
            )),
        }
    }
}
