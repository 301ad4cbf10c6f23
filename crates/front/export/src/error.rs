//! Errors of extract, tar, convert and check.

use std::io;
use std::path::PathBuf;

use forerun_build::BuildError;
use forerun_vfs::Error;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The image could not be read at this path.
    #[error("/{}: {source}", String::from_utf8_lossy(path))]
    Image { path: Vec<u8>, source: Error },
    #[error("{}: {source}", path.display())]
    Target { path: PathBuf, source: io::Error },
    #[error("{}: cannot {action}: {source}", String::from_utf8_lossy(path))]
    Entry {
        path: Vec<u8>,
        action: &'static str,
        source: io::Error,
    },
    #[error("{}: some of it may not be on the disk: {source}", path.display())]
    Sync { path: PathBuf, source: io::Error },
    /// A hard link was not created because its first name is not the file that this run created.
    #[error(
        "{}: cannot make the hard link: its other name {} {reason}",
        String::from_utf8_lossy(path),
        String::from_utf8_lossy(first)
    )]
    Link {
        path: Vec<u8>,
        first: Vec<u8>,
        /// What is wrong with the first name.
        reason: &'static str,
    },
    /// An entry was omitted deliberately.
    #[error("{}: left out: {reason}", String::from_utf8_lossy(path))]
    LeftOut { path: Vec<u8>, reason: &'static str },
    #[error(transparent)]
    Pattern(BuildError),
    #[error("writing the archive: {0}")]
    Output(#[source] io::Error),
    /// A limit is exceeded; nothing has been written.
    #[error("{what} {count} exceeds the limit of {limit}")]
    Limit {
        what: &'static str,
        count: u64,
        limit: u64,
    },
}

impl ExportError {
    pub fn image(path: &[u8], source: Error) -> Self {
        Self::Image {
            path: path.to_vec(),
            source,
        }
    }
}
