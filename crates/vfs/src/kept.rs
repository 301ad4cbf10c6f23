//! Places for results that a driver makes once and may need again: decoded bytes, and indexes.

use std::fs::File;
use std::io;

/// Makes files for decoded bytes. The caller decides where they are; a driver opens no file itself.
pub trait MakeSpool: Send + Sync {
    /// Creates a file for reading and writing, or opens the one that was created before: a driver
    /// appends to it. The file has no name, or loses it, and disappears when it is closed.
    ///
    /// # Errors
    /// Any error of making a file.
    fn make(&self) -> io::Result<File>;
}

/// Keeps the index of one image from one opening to the next. The caller decides which image it
/// belongs to, so a kept index is for the same bytes. It may be damaged nevertheless, so a driver
/// validates it.
pub trait KeepIndex: Send + Sync {
    /// Returns the kept index, of at most `most` bytes. Returns `None` if there is none, or if it
    /// cannot be read.
    fn load(&self, most: u64) -> Option<Vec<u8>>;

    /// Returns whether an index was kept.
    fn is_kept(&self) -> bool {
        self.load(u64::MAX).is_some()
    }

    /// Keeps an index. The caller reports a failure: the image is open in any case.
    fn store(&self, index: &[u8]);
}
