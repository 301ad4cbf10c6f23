//! Lists the objects of a store that an image needs.

use std::collections::HashSet;
use std::sync::Arc;

pub use forerun_composefs::{Collected, Garbage, ObjectStore, collect};
use forerun_composefs::{ObjectName, referenced};
use forerun_engine::{EngineOptions, MetadataSource};
use forerun_io::{BlobId, Counted, ReadAt};
use forerun_vfs::{Limits, OpenWith, Result};

/// Adds the names of the objects that the image in `source` refers to.
///
/// # Errors
/// The errors of opening and walking the image. No object may be collected as garbage then: the
/// references of the rest of the image are unknown.
pub fn add_referenced(
    source: Arc<dyn ReadAt>,
    limits: &Limits,
    names: &mut HashSet<ObjectName>,
) -> Result<()> {
    let geometry = EngineOptions::default().geometry(source.len());
    let counted = Counted::new(source, BlobId::IMAGE, Arc::default());
    let metadata = MetadataSource::new(counted, geometry, OpenWith::CACHE);
    let mut with = OpenWith::new(Arc::new(metadata));
    with.limits = limits.clone();
    referenced(with, names)
}
