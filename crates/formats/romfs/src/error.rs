//! The checks an image can fail, one variant each.

use forerun_vfs::{Corrupt, Error, NameError, NodeId};

/// A failed check, with the numbers needed to find the bytes. The offset of the structure is stored
/// beside it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Check {
    #[error("the image is {len} bytes long; a superblock takes {need}")]
    ShortSuperblock { len: u64, need: u64 },
    #[error("bad magic {found:02x?}")]
    Magic { found: [u8; 8] },
    #[error("the superblock says {full_size} bytes, the source has {source_len}")]
    SourceTooShort { full_size: u64, source_len: u64 },
    #[error("the superblock says {full_size} bytes, too few for a root directory")]
    FullSize { full_size: u64 },
    #[error("the words of the first {covered} bytes add up to {sum:#010x} instead of 0")]
    SuperblockChecksum { covered: u64, sum: u32 },
    #[error("the volume name does not end within {limit} bytes")]
    VolumeName { limit: usize },
    #[error("header outside the image of {full_size} bytes")]
    HeaderOutside { full_size: u64 },
    #[error("the name does not end within {limit} bytes")]
    NameEndless { limit: usize },
    #[error("{source}: {name:?}")]
    Name { name: String, source: NameError },
    #[error("{size} bytes of data at {data:#x} end past the end of the image at {full_size:#x}")]
    DataOutside {
        data: u64,
        size: u64,
        full_size: u64,
    },
    #[error("hard link to {target:#x} begins a chain of more than {hops} hard links")]
    HardLinkHops { target: u64, hops: u32 },
    #[error("hard link to the directory at {target:#x}")]
    HardLinkToDirectory { target: u64 },
    #[error("the chain of entries returns to this header")]
    ChainLoop,
    #[error("second entry named {name:?}; the first is at {first:#x}")]
    DuplicateName { name: String, first: u64 },
    #[error("the chain has more than {limit} headers, which is all that fit into the image")]
    TooManyEntries { limit: u64 },
    #[error("the root is not a directory")]
    RootKind,
    #[error("symbolic link of {size} bytes; from 1 to {limit} are allowed")]
    SymlinkLen { size: u64, limit: u64 },
    #[error("the target of the symbolic link contains a NUL byte")]
    SymlinkNul,
    #[error("the words of header and name add up to {sum:#010x} instead of 0")]
    HeaderChecksum { sum: u32 },
    #[error("spec.info is {found:#x}; this type of file must have 0")]
    SpecInfo { found: u32 },
    #[error("spec.info is {found:#x}; the low four bits of an offset must be 0")]
    SpecInfoBits { found: u32 },
    #[error("the executable bit is set; only regular files and directories may have it")]
    ExecutableBit,
    #[error("the directory has no entry {name:?}")]
    DotMissing { name: &'static str },
    #[error("the entry {name:?} refers to {found:#x} instead of {expected}")]
    DotElsewhere {
        name: &'static str,
        found: u64,
        expected: &'static str,
    },
    #[error(
        "the source ends at {source_len:#x}; an image of {full_size:#x} bytes must be padded to a multiple of 1024"
    )]
    Padding { full_size: u64, source_len: u64 },
    #[error("size is {found}; this type of file must have 0")]
    Size { found: u32 },
}

impl Check {
    /// Creates the error of this check for the structure at `offset`.
    pub fn at(self, node: Option<NodeId>, offset: u64) -> Error {
        Corrupt::new("romfs", node, offset, self).into()
    }
}
