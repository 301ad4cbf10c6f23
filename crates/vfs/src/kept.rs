//! Storage for results that a driver makes once and may need again: decoded bytes, and indexes.

use std::fs::File;
use std::io;

/// Makes temporary files for decoded bytes. The caller decides where they are; a driver opens no
/// file itself.
pub trait MakeSpool: Send + Sync {
    /// Creates a file for reading and writing, or opens the file that an earlier call created: a
    /// driver appends to it. The file is unlinked, so it disappears when it is closed.
    ///
    /// # Errors
    /// Any error of creating a file.
    fn make(&self) -> io::Result<File>;
}

/// Keeps the index of one image between openings. The caller ensures that an index belongs to the
/// same image. The driver validates it, because it may be damaged.
pub trait KeepIndex: Send + Sync {
    /// Returns the kept index, of at most `most` bytes. Returns `None` if there is none, or if it
    /// cannot be read.
    fn load(&self, most: u64) -> Option<Vec<u8>>;

    fn is_kept(&self) -> bool {
        self.load(u64::MAX).is_some()
    }

    /// Keeps an index. Returns no error, because the image can be used without; the implementation
    /// reports a failure.
    fn store(&self, index: &[u8]);
}
