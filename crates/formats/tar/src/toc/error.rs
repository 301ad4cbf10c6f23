//! The checks that a table of contents can fail, one variant each.

use forerun_vfs::{Corrupt, Error};

/// A failed check. The error stores the offset of the table, or of the chunk, next to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TocCheck {
    #[error("the archive does not end with the footer of a table of contents")]
    Footer,
    #[error(
        "the table of contents is said to be at {offset:#x}, {len} bytes long; the archive has {source_len}"
    )]
    Outside {
        offset: u64,
        len: u64,
        source_len: u64,
    },
    #[error("the table of contents has the digest sha256:{found}, not sha256:{expected}")]
    Digest { expected: String, found: String },
    #[error("the table of contents cannot be decoded")]
    Damaged,
    #[error("the table of contents is not the file stargz.index.json of an archive")]
    NoFile,
    #[error("the table of contents is not JSON of the expected form: {reason}")]
    Json { reason: String },
    #[error("entry {entry} ({name:?}) of the table of contents: {what}")]
    Entry {
        entry: u64,
        name: String,
        what: EntryCheck,
    },
    #[error("the pieces at {first:#x} and {second:#x} of the archive overlap")]
    Overlap { first: u64, second: u64 },
    #[error("the piece ends at {end:#x}, behind the data of the archive, which ends at {limit:#x}")]
    Behind { end: u64, limit: u64 },
    #[error(
        "the {len} bytes from {start} on of what is stored here have the digest sha256:{found}, not sha256:{expected}"
    )]
    Piece {
        start: u64,
        len: u64,
        expected: String,
        found: String,
    },
    #[error("the table of contents is damaged: the reference at {at:#x} leads outside of it")]
    Flat { at: usize },
    #[error("the table of contents is of an archive of {stored} bytes; this one has {source_len}")]
    OtherArchive { stored: u64, source_len: u64 },
    #[error("the table of contents says that {stored} bytes decode to {decoded}")]
    Lengths { stored: i64, decoded: i64 },
    #[error("the table of contents has {found} digests of spans for {checkpoints} checkpoints")]
    Digests { found: usize, checkpoints: usize },
    #[error("the digest {0:?} of a span is not a SHA-256 digest")]
    BadDigest(String),
    #[error("the table of contents has no chunk here")]
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryCheck {
    #[error("it has the unknown type {0:?}")]
    Kind(String),
    #[error("its path cannot be used: {0}")]
    Path(String),
    #[error("the {field} is out of range: {value}")]
    Range { field: &'static str, value: String },
    #[error("no earlier file has this chunk")]
    NoFile,
    #[error("the piece begins at byte {found} of the file, not at {expected}")]
    Gap { found: u64, expected: u64 },
    #[error("its chunks end at byte {end}, but the file has {size} bytes")]
    Size { end: u64, size: u64 },
    #[error("it has no digest")]
    NoDigest,
    #[error("the digest {0:?} is not a SHA-256 digest")]
    BadDigest(String),
    #[error("too many entries have xattrs")]
    Xattrs,
    #[error("its data cannot be at {offset:#x} to {end:#x} of the archive")]
    Place { offset: u64, end: u64 },
    #[error("{0}")]
    Record(String),
}

impl TocCheck {
    /// Returns the error that this check failed at `offset` of the archive.
    pub fn at(self, offset: u64) -> Error {
        Corrupt::new("tar", None, offset, self).into()
    }
}
