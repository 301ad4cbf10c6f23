//! The end of a pass before the end of the stream.

use forerun_vfs::Error;

/// The reason why a pass ended early.
pub enum Failed {
    /// The stream is damaged.
    Stream(Error),
    Other(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}
