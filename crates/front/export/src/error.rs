//! Errors of exporting an image: extract, tar, convert and check.

use std::io;
use std::path::PathBuf;

use forerun_build::BuildError;
use forerun_vfs::Error;

/// An export that failed, or a part of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The image could not be read there.
    #[error("/{}: {source}", String::from_utf8_lossy(path))]
    Image {
        /// Path in the image.
        path: Vec<u8>,
        /// The error of the entry.
        source: Error,
    },
    /// The place to extract to could not be opened or made.
    #[error("{}: {source}", path.display())]
    Target {
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// An entry could not be made below the target.
    #[error("{}: cannot {action}: {source}", String::from_utf8_lossy(path))]
    Entry {
        /// Path below the target.
        path: Vec<u8>,
        /// The action that failed.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The disk did not take all that was written.
    #[error("{}: some of it may not be on the disk: {source}", path.display())]
    Sync {
        /// The directory to which was extracted.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A further name of a file was not made, because the first one is not what this run made.
    #[error(
        "{}: cannot make the hard link: its other name {} {reason}",
        String::from_utf8_lossy(path),
        String::from_utf8_lossy(first)
    )]
    Link {
        /// Path below the target.
        path: Vec<u8>,
        /// Path below the target of the name that should have been linked.
        first: Vec<u8>,
        /// The defect of that name.
        reason: &'static str,
    },
    /// An entry was left out on purpose.
    #[error("{}: left out: {reason}", String::from_utf8_lossy(path))]
    LeftOut {
        /// Path below the target.
        path: Vec<u8>,
        reason: &'static str,
    },
    /// A path with wildcards is no pattern.
    #[error(transparent)]
    Pattern(BuildError),
    /// The archive could not be written.
    #[error("writing the archive: {0}")]
    Output(#[source] io::Error),
    /// More than a limit allows, found before anything was written.
    #[error("{what} {count} exceeds the limit of {limit}")]
    Limit {
        /// The things that were counted.
        what: &'static str,
        /// How much there is.
        count: u64,
        limit: u64,
    },
}

impl ExportError {
    /// Creates an error of the image at a path.
    pub fn image(path: &[u8], source: Error) -> Self {
        Self::Image {
            path: path.to_vec(),
            source,
        }
    }
}
