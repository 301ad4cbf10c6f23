//! The checks an archive can fail, one variant each.

use forerun_codec::DecodeError;
use forerun_vfs::{Corrupt, Error, NameError, NodeId};

/// A failed check, with the numbers needed to find the bytes. The offset of the record is stored
/// beside it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Check {
    #[error("no end of central directory record in the last {searched} bytes")]
    NoEnd { searched: u64 },
    #[error("no zip64 end of central directory record where its locator points")]
    NoEnd64,
    #[error(
        "the central directory of {len} bytes at {offset:#x} does not end before the record at {end:#x}"
    )]
    Directory { offset: u64, len: u64, end: u64 },
    #[error("{found:02x?} instead of a central file header")]
    Signature { found: [u8; 4] },
    #[error("the entry takes {len} bytes; the central directory has {left}")]
    Entry { len: u64, left: u64 },
    #[error("the central directory has {found} entries; the end record declares {declared}")]
    Entries { declared: u64, found: u64 },
    #[error("{left} bytes after the last entry of the central directory")]
    Left { left: u64 },
    #[error("{path:?}: the zip64 field lacks the {field}")]
    Zip64 { path: String, field: &'static str },
    #[error("{found:02x?} instead of a local file header")]
    NoLocal { found: [u8; 4] },
    #[error(
        "the offset of the local file header is too large: {offset:#x}, plus {prefix} bytes before the archive"
    )]
    Header { offset: u64, prefix: u64 },
    #[error("the local file header here does not end before the central directory at {end:#x}")]
    LocalOutside { end: u64 },
    #[error(
        "the data of {len} bytes at {offset:#x} does not end before the central directory at {end:#x}"
    )]
    Outside { offset: u64, len: u64, end: u64 },
    #[error("the member is not compressed and has {stored} bytes instead of {size}")]
    StoredLen { stored: u64, size: u64 },
    #[error("the member decodes to more than {size} bytes")]
    Long { size: u64 },
    #[error("the member decodes to {found} bytes instead of {size}")]
    Short { found: u64, size: u64 },
    #[error("{left} bytes after the compressed data")]
    Behind { left: u64 },
    #[error("the contents have the CRC-32 {found:#010x} instead of {stored:#010x}")]
    Crc { stored: u32, found: u32 },
    #[error("the target of the symbolic link cannot be decoded: {source}")]
    Link { source: DecodeError },
    #[error("the target of the symbolic link is empty, longer than {limit} bytes, or has a NUL")]
    Target { limit: u64 },
    #[error("{path:?} is left out: {source}")]
    Name { path: String, source: NameError },
    #[error("{path:?} is left out: it names a parent directory with ..")]
    Climbs { path: String },
    #[error("{path:?} is left out: one of its parents is not a directory")]
    Parent { path: String },
    #[error("{path:?} is left out: it is the root but not a directory")]
    Root { path: String },
    #[error("{path:?} is left out: it is on disk {disk} of a split archive")]
    Disk { path: String, disk: u32 },
    #[error("{path:?} comes several times; the last one counts")]
    Twice { path: String },
    #[error("{path:?} has the type {kind:#o} and is taken as a file")]
    Kind { path: String, kind: u32 },
    #[error("the local file header has another {field} than its entry in the central directory")]
    Differs { field: &'static str },
    #[error("the local file header names {local:?}, the central directory {name:?}")]
    LocalName { local: String, name: String },
    #[error("the member begins within another one, which ends at {end:#x}")]
    Overlap { end: u64 },
}

impl Check {
    /// Returns whether a member with this deviation is left out of the tree.
    pub const fn leaves_out(&self) -> bool {
        matches!(
            self,
            Self::Disk { .. }
                | Self::Climbs { .. }
                | Self::Name { .. }
                | Self::Root { .. }
                | Self::Parent { .. }
                | Self::Zip64 { .. }
        )
    }

    /// Creates the error of this check for the record at `offset`.
    pub fn at(self, offset: u64) -> Error {
        Corrupt::new("zip", None, offset, self).into()
    }

    /// Creates the error of this check for the record at `offset`, which was read for `node`.
    pub fn of(self, node: NodeId, offset: u64) -> Error {
        Corrupt::new("zip", Some(node), offset, self).into()
    }
}

/// Converts bytes to text for a message, truncated to fit into a line.
pub fn lossy(bytes: &[u8]) -> String {
    let shown = bytes.get(..256).unwrap_or(bytes);
    String::from_utf8_lossy(shown).into_owned()
}
