//! Removes the objects of a store that no image needs.

use std::io;
use std::path::Path;
use std::sync::Arc;

use forerun_engine::{EngineOptions, MetadataSource};
use forerun_io::{BlobId, Counted, ReadAt};
pub use forerun_vfs::objects::Collected;
use forerun_vfs::objects::Collector;
use forerun_vfs::{Limits, OpenWith, Result};

use crate::registry::object_formats;

/// An object store, and the objects that images refer to.
pub struct Collection(Box<dyn Collector>);

impl std::fmt::Debug for Collection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collection").finish_non_exhaustive()
    }
}

impl Collection {
    /// Opens the store at `path`. All of its objects are garbage until images are added.
    ///
    /// # Errors
    /// The errors of opening the directory; [`io::ErrorKind::Unsupported`] if no format has stores,
    /// or if images do not tell what is needed in this one.
    pub fn open(path: &Path) -> io::Result<Self> {
        let format = object_formats().first();
        let format = format.ok_or(io::ErrorKind::Unsupported)?;
        (format.collector)(path).map(Self)
    }

    /// Keeps the objects that the image in `source` refers to, and the image itself if it is an
    /// object: `file` is its device and inode.
    ///
    /// # Errors
    /// The errors of opening and walking the image, and of a reference that is not understood.
    /// After an error nothing may be collected, because the image's objects are not all known.
    pub fn keep(
        &mut self,
        source: Arc<dyn ReadAt>,
        file: Option<(u64, u64)>,
        limits: &Limits,
    ) -> Result<()> {
        let geometry = EngineOptions::default().geometry(source.len());
        let counted = Counted::new(source, BlobId::IMAGE, Arc::default());
        let metadata = MetadataSource::new(counted, geometry, OpenWith::CACHE);
        let mut with = OpenWith::new(Arc::new(metadata));
        with.limits = limits.clone();
        self.0.keep(with, file)
    }

    /// Removes the files of the store that no image needs, and passes their names to `tell`. With
    /// `dry_run`, only reports them. No process may add objects for other images meanwhile.
    ///
    /// # Errors
    /// The errors of reading or changing the store; files removed before stay removed.
    pub fn collect(&self, dry_run: bool, tell: &mut dyn FnMut(String)) -> io::Result<Collected> {
        self.0.collect(dry_run, tell)
    }
}
