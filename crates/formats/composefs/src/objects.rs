//! An object store as the resolver of blobs for drivers.

use std::fs::File;
use std::io;
use std::sync::Arc;

use forerun_io::{FileSource, ReadAt};
use forerun_vfs::{BlobName, ResolveBlob};

use crate::digest::Digest;
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
                "this is no name of an object",
            )),
        }
    }
}

/// The name of an object as an image may spell it: `ab/cdef...` with 64 hexadecimal digits, with or
/// without a slash before it. Objects of OSTree end with `.file`, and the digest in their names is
/// not that of fs-verity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectName {
    digits: Digest,
    ostree: bool,
}

impl ObjectName {
    /// Parses `path` as a name. Returns nothing for every other path: a name in an image must not
    /// lead anywhere but to an object.
    #[must_use]
    pub fn parse(path: &[u8]) -> Option<Self> {
        let (path, ostree) = match path.strip_suffix(b".file") {
            Some(path) => (path, true),
            None => (path, false),
        };
        let digits = Digest::from_object_path(path)?;
        Some(Self { digits, ostree })
    }

    /// Returns its path in a store.
    #[must_use]
    pub fn path(&self) -> String {
        let mut path = self.digits.object_path();
        if self.ostree {
            path.push_str(".file");
        }
        path
    }
}

impl From<Digest> for ObjectName {
    fn from(digits: Digest) -> Self {
        let ostree = false;
        Self { digits, ostree }
    }
}
