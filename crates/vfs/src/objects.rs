//! The interface between a format that keeps file data in a store of objects, and the callers that
//! name the store.
//!
//! Not a part of [`Format`](crate::Format), because few formats have stores. The registry has a
//! separate table of [`ObjectFormat`].

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use crate::{OpenWith, ResolveBlob, Result};

/// A format whose images keep file data as objects of a store.
#[derive(Clone, Copy, Debug)]
pub struct ObjectFormat {
    pub format: &'static str,
    /// Name of the format that recognises such an image if it has no header of its own.
    pub found_as: &'static str,
    /// Opens a store to read objects.
    pub open: fn(&Path) -> io::Result<Arc<dyn ResolveBlob>>,
    /// Opens a directory to read all files below it by the paths that an image gives.
    pub open_base: fn(&Path) -> io::Result<Arc<dyn ResolveBlob>>,
    /// Computes the digests of an image from its bytes, by each hash that the format knows, in lower-case
    /// hexadecimal digits. If a number of digits is given, only those of that length.
    pub digests: fn(&mut dyn Read, Option<usize>) -> io::Result<Vec<String>>,
    /// Opens a store to remove objects that no image needs.
    pub collector: fn(&Path) -> io::Result<Box<dyn Collector>>,
}

pub trait Collector {
    /// Marks an image, and the objects that it refers to, as needed. `file` is the device and inode
    /// of the image, if it is a file. The limits in `image` apply.
    ///
    /// # Errors
    /// The errors of opening and walking the image, and of a reference that is not understood. The
    /// caller must then remove no object, because the needs of the image are unknown.
    fn keep(&mut self, image: OpenWith, file: Option<(u64, u64)>) -> Result<()>;

    /// Removes the files of the store that no image needs, and passes their names to `tell`. With
    /// `dry_run`, only reports them. No other process may add objects meanwhile.
    ///
    /// # Errors
    /// The errors of reading or changing the store. Files that were already removed stay removed.
    fn collect(&self, dry_run: bool, tell: &mut dyn FnMut(String)) -> io::Result<Collected>;
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    pub kept: u64,
    /// Number of objects and other files that are not needed. They were removed unless it was a dry
    /// run.
    pub removed: u64,
    /// Disk space of the removed files, in bytes.
    pub bytes: u64,
}
