//! Stores of objects: the seam between a format that keeps file data in one and the callers that name it.
//!
//! Not a part of [`Format`](crate::Format), because few formats have stores. The registry has a
//! table of [`ObjectFormat`] of its own.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use crate::{OpenWith, ResolveBlob, Result};

/// A format whose images keep file data as objects of a store: an entry of the registry.
#[derive(Clone, Copy, Debug)]
pub struct ObjectFormat {
    /// Name of the format.
    pub format: &'static str,
    /// Name of the format that recognises such an image if it has no header of its own.
    pub found_as: &'static str,
    /// Opens a store to read objects.
    pub open: fn(&Path) -> io::Result<Arc<dyn ResolveBlob>>,
    /// Computes the digest of an image from its bytes, in lower-case hexadecimal digits.
    pub digest: fn(&mut dyn Read) -> io::Result<String>,
    /// Opens a store to remove objects that no image needs.
    pub collector: fn(&Path) -> io::Result<Box<dyn Collector>>,
}

/// Removes the objects of a store that no image refers to.
pub trait Collector {
    /// Keeps an image, which is `file` by device and inode, and the objects that it refers to. The limits
    /// in `image` hold.
    ///
    /// # Errors
    /// The errors of opening and walking the image, and of a reference that is not understood. No
    /// object may be removed then, because the needs of the image are unknown.
    fn keep(&mut self, image: OpenWith, file: Option<(u64, u64)>) -> Result<()>;

    /// Removes the files of the store that no image needs, and passes their names to `tell`. With `dry_run`
    /// only reports them. No process may add objects for other images meanwhile.
    ///
    /// # Errors
    /// The errors of reading or changing the store; files removed before stay removed.
    fn collect(&self, dry_run: bool, tell: &mut dyn FnMut(String)) -> io::Result<Collected>;
}

/// The result of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Objects that are needed.
    pub kept: u64,
    /// Objects and other files that are not needed. They were removed unless it was a dry run.
    pub removed: u64,
    /// Bytes of the removed files on the disk.
    pub bytes: u64,
}
