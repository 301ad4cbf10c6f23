//! The checks an image can fail, one variant each.

use forerun_codec::DecodeError;
use forerun_vfs::{Corrupt, Error, NameError, NodeId};

/// A failed check, with the numbers needed to find the bytes. The offset of the structure is stored
/// beside it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Check {
    #[error("the image is {len} bytes long; a superblock takes {need}")]
    ShortSuperblock { len: u64, need: u64 },
    #[error("bad magic {found:02x?}")]
    Magic { found: [u8; 4] },
    #[error("the superblock says {size} bytes, fewer than the {least} up to its own end")]
    ImageSize { size: u64, least: u64 },
    #[error("the superblock says {size} bytes, the source has {source_len}")]
    SourceTooShort { size: u64, source_len: u64 },
    #[error("the root has the mode {mode:#o}, which is not a directory")]
    RootKind { mode: u16 },
    #[error("unknown file type in mode {mode:#o}")]
    Mode { mode: u16 },
    #[error("{len} bytes are left for an inode, which takes 12")]
    InodeCut { len: usize },
    #[error(
        "the directory's {size} bytes of entries at {start:#x} lie outside the image of {image_len:#x} bytes"
    )]
    EntriesOutside {
        start: u64,
        size: u64,
        image_len: u64,
    },
    #[error("the name of {len} bytes reaches past the end of the directory at {end:#x}")]
    NameCut { len: usize, end: u64 },
    #[error("the entry has no name")]
    NoName,
    #[error("{source}: {name:?}")]
    Name { name: String, source: NameError },
    #[error("second entry named {name:?}; the first is at {first:#x}")]
    DuplicateName { name: String, first: u64 },
    #[error(
        "the table of {blocks} block pointers at {table:#x} lies outside the image of {image_len:#x} bytes"
    )]
    TableOutside {
        table: u64,
        blocks: u64,
        image_len: u64,
    },
    #[error("block {block} ends at {end:#x}, before its start at {start:#x}")]
    BlockBackwards { block: u64, start: u64, end: u64 },
    #[error("block {block} at {start:#x}..{end:#x} lies outside the image of {image_len:#x} bytes")]
    BlockOutside {
        block: u64,
        start: u64,
        end: u64,
        image_len: u64,
    },
    #[error("block {block} takes {len} compressed bytes, more than {limit}")]
    BlockLen { block: u64, len: u64, limit: u64 },
    #[error("block {block} is not compressed and has {len} bytes instead of {expected}")]
    StoredLen { block: u64, len: u64, expected: u64 },
    #[error("symbolic link of {size} bytes; from 1 to {limit} are allowed")]
    SymlinkLen { size: u64, limit: u64 },
    #[error("the target of the symbolic link contains a NUL byte")]
    SymlinkNul,
    #[error("the target of the symbolic link cannot be decoded: {source}")]
    SymlinkDecode { source: DecodeError },
    #[error("the image's CRC-32 is {found:#010x}; the superblock says {stored:#010x}")]
    ImageChecksum { stored: u32, found: u32 },
    #[error("the signature is {found:02x?} instead of \"Compressed ROMFS\"")]
    Signature { found: [u8; 16] },
    #[error("the reserved word `future` is {found:#x} instead of 0")]
    Future { found: u32 },
    #[error("the root's entries begin at {found:#x} instead of {expected:#x}")]
    RootOffset { found: u64, expected: u64 },
    #[error("the entry {name:?} comes before {previous:?} in the order of names")]
    Unsorted { name: String, previous: String },
    #[error("the offset is {offset:#x}; an inode without data must have 0")]
    UselessOffset { offset: u64 },
    #[error("the size is {size}; this type of file must have 0")]
    UselessSize { size: u32 },
}

impl Check {
    /// Creates the error of this check for the structure at `offset`.
    pub fn at(self, node: Option<NodeId>, offset: u64) -> Error {
        Corrupt::new("cramfs", node, offset, self).into()
    }
}
