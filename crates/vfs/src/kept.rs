//! Places for what a driver makes once and may need again: decoded bytes, and indexes.

use std::fs::File;
use std::io;

/// Makes files for decoded bytes. The caller decides where they are; a driver opens no file itself.
pub trait MakeSpool: Send + Sync {
    /// Makes a file for reading and writing, or opens the one that was made before: a driver writes behind what
    /// is there. It has no name, or loses it, and is gone once it is closed.
    ///
    /// # Errors
    /// Any error of making a file.
    fn make(&self) -> io::Result<File>;
}

/// Keeps the index of one image from one opening to the next. The caller decides which image it belongs to: an
/// index that is found is one of the same bytes. It may be damaged all the same, so a driver validates it.
pub trait KeepIndex: Send + Sync {
    /// Returns the index that was kept, of at most `most` bytes. Returns nothing if there is none, or none that can
    /// be read.
    fn load(&self, most: u64) -> Option<Vec<u8>>;

    /// Returns whether an index was kept.
    fn is_kept(&self) -> bool {
        self.load(u64::MAX).is_some()
    }

    /// Keeps an index. A failure is the caller's to report: the image is open, whether it is kept or not.
    fn store(&self, index: &[u8]);
}
