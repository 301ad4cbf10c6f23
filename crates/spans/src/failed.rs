//! Why a pass ended before the end of the stream.

use forerun_vfs::Error;

pub enum Failed {
    /// The stream is damaged. A rescue keeps what was decoded so far.
    Stream(Error),
    Other(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}
