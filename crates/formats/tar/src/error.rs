//! The checks that an archive can fail, one variant each.

use forerun_vfs::{AclError, Corrupt, Error, NameError};

/// A failed check, with the numbers needed to find the bytes. The error stores the offset of the
/// header next to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Check {
    #[error("the header stores the checksum {stored}, but its bytes add up to {found}")]
    Checksum { stored: i64, found: u64 },
    #[error("the field {field} is not a number: {bytes:02x?}")]
    Number { field: &'static str, bytes: Vec<u8> },
    #[error("the number {value} of {field} is out of range")]
    Range { field: &'static str, value: i64 },
    #[error("the archive is {len} bytes long; the data that begins here ends at {end}")]
    Cut { end: u64, len: u64 },
    #[error("a size of {size} bytes is more than any file can have")]
    Long { size: u64 },
    #[error("extended header of {size} bytes, more than {limit}")]
    ExtendedLen { size: u64, limit: u64 },
    #[error("record {record} of the extended header is damaged")]
    Record { record: usize },
    #[error("the value of {key} in the extended header is not valid: {value:?}")]
    Value { key: String, value: String },
    #[error("the map of the sparse file is not valid at piece {piece}")]
    SparseMap { piece: usize },
    #[error("the sparse file stores {stored} bytes; its map names {named}")]
    SparseLen { stored: u64, named: u64 },
    #[error("{path:?} is left out: {source}")]
    Name { path: String, source: NameError },
    #[error("{path:?} is left out: it names a parent directory with ..")]
    Climbs { path: String },
    #[error("{path:?} is left out: one of its parents is not a directory")]
    Parent { path: String },
    #[error("{path:?} is left out: it is the root but not a directory")]
    Root { path: String },
    #[error(
        "{path:?} is left out: it is a hard link to {target:?}, and no file before it has that path"
    )]
    Dangling { path: String, target: String },
    #[error(
        "{path:?} is left out: the target of the symbolic link is empty, too long, or has a NUL"
    )]
    Symlink { path: String },
    #[error("{path:?} is left out: {check}")]
    LeftOut { path: String, check: Box<Check> },
    #[error("{path:?}: {check}")]
    Odd { path: String, check: Box<Check> },
    #[error("{path:?} is left out: a directory is there that is not empty")]
    NotEmpty { path: String },
    #[error("the type {kind:?} is unknown and taken as a file")]
    Kind { kind: char },
    #[error("members of type {kind:?}, {what}, are not supported")]
    NotSupported { kind: char, what: &'static str },
    #[error("the access control list is left out: {0}")]
    Acl(AclError),
    #[error("the archive has no two blocks of zeros at its end")]
    NoEnd,
    #[error("the bytes from here on are not part of the archive")]
    Trailing,
}

impl Check {
    /// Returns the error that this check failed on the structure at `offset`.
    pub fn at(self, offset: u64) -> Error {
        Corrupt::new("tar", None, offset, self).into()
    }
}

/// Returns bytes as text for a message, truncated to fit a line.
pub fn lossy(bytes: &[u8]) -> String {
    let shown = bytes.get(..256).unwrap_or(bytes);
    String::from_utf8_lossy(shown).into_owned()
}
