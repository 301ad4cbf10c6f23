//! The checks an image can fail, one variant each.

use forerun_codec::DecodeError;
use forerun_vfs::{Corrupt, Error, NameError, NodeId};

use crate::reference::Reference;

/// A failed check, with the numbers needed to find the bytes. The offset of the structure, or of
/// its metadata block, is stored next to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Check {
    #[error("the image is {len} bytes long; a superblock takes 96")]
    ShortSuperblock { len: u64 },
    #[error("the image is {len} bytes long; a superblock of its version takes {need}")]
    ShortOldSuperblock { len: u64, need: usize },
    #[error("byte {found:#04x} instead of 0xff after the header of a metadata block")]
    Marker { found: u8 },
    #[error(
        "the last 96 bytes of this streamed image must be its superblock but begin with {found:02x?}; it may be truncated or padded"
    )]
    Streamed { found: [u8; 4] },
    #[error("block size {block_size} with log {log}; it must be 2^log, from 4096 to 1048576")]
    BlockSize { block_size: u32, log: u16 },
    #[error("the superblock says {bytes_used} bytes, the source has {source_len}")]
    SourceTooShort { bytes_used: u64, source_len: u64 },
    #[error("the {table} starts at {start:#x}; the image ends at {end:#x}")]
    TableOutside {
        table: &'static str,
        start: u64,
        end: u64,
    },
    #[error("the directory table at {directories:#x} is not after the inode table at {inodes:#x}")]
    TableOrder { inodes: u64, directories: u64 },
    #[error("the superblock says that the image has no ids")]
    NoIds,
    #[error("the superblock says that the image has {fragments} fragments but no fragment table")]
    NoFragmentTable { fragments: u32 },
    #[error("reference {reference} is outside the {table} of {len} bytes")]
    Reference {
        reference: Reference,
        table: &'static str,
        len: u64,
    },
    #[error("the {table} continues past its end at {end:#x}")]
    TableEnd { table: &'static str, end: u64 },
    #[error("metadata block of {len} bytes; from 1 to 8192 are allowed")]
    MetadataLen { len: u16 },
    #[error("metadata block: {source}")]
    MetadataDecode { source: DecodeError },
    #[error("offset {offset} is past the end of a metadata block of {len} bytes")]
    MetadataOffset { offset: usize, len: usize },
    #[error(
        "{count} entries of the {table} take {need} bytes of pointers; there is room for {room}"
    )]
    TableRoom {
        table: &'static str,
        count: u64,
        need: u64,
        room: u64,
    },
    #[error("the {table} has no entry {index}; it has {count} entries")]
    TableIndex {
        table: &'static str,
        index: u64,
        count: u64,
    },
    #[error("inode of unknown type {found}")]
    InodeType { found: u16 },
    #[error(
        "{size} bytes in blocks of {block_size} take {blocks} block sizes; there is room for {room}"
    )]
    FileSize {
        size: u64,
        block_size: u32,
        blocks: u64,
        room: u64,
    },
    #[error("the file size {size} is above the limit of 2^62 bytes")]
    HugeFile { size: u64 },
    #[error("block {block} of the file has {len} bytes, but takes {stored} in the image")]
    BlockLen { block: u64, stored: u32, len: u32 },
    #[error("block {block} of the file lies at {start:#x}..{end:#x}; the image ends at {image:#x}")]
    BlockOutside {
        block: u64,
        start: u64,
        end: u64,
        image: u64,
    },
    #[error("fragment {index} is {stored} bytes long; from 1 to {block_size} are allowed")]
    FragmentLen {
        index: u32,
        stored: u32,
        block_size: u32,
    },
    #[error(
        "fragment {index} lies at {start:#x} and is {stored} bytes long; the image ends at {image:#x}"
    )]
    FragmentOutside {
        index: u32,
        start: u64,
        stored: u32,
        image: u64,
    },
    #[error(
        "the end of the file is at {offset}..{end} of fragment {index}, which has at most {len} bytes"
    )]
    FragmentRange {
        index: u32,
        offset: u32,
        end: u64,
        len: u32,
    },
    #[error("symbolic link of {size} bytes; from 1 to {limit} are allowed")]
    SymlinkLen { size: u64, limit: u64 },
    #[error("the target of the symbolic link contains a NUL byte")]
    SymlinkNul,
    #[error("the root is not a directory")]
    RootKind,
    #[error("the directory has the size {size}; an empty directory already has 3")]
    ListingSize { size: u32 },
    #[error("the directory ends in the middle of an entry, {left} bytes before its end")]
    ListingCut { left: u64 },
    #[error("a directory header with {count} entries; at most 256 are allowed")]
    RunLen { count: u64 },
    #[error("entry of unknown type {found}; the type in its inode is used")]
    EntryType { found: u16 },
    #[error("entry {name:?} has the type {says}, but its inode is a {found}")]
    EntryKind {
        name: String,
        says: &'static str,
        found: &'static str,
    },
    #[error("entry {name:?} refers to {reference}, outside the inode table of {len} bytes")]
    EntryReference {
        name: String,
        reference: Reference,
        len: u64,
    },
    #[error("{source}: {name:?}")]
    Name { name: String, source: NameError },
    #[error("entry {name:?} follows {before:?}, but names must be unique and in order")]
    NameOrder { name: String, before: String },
    #[error("directory index {index} points to byte {at} of a directory of {size} bytes")]
    DirIndex { index: u16, at: u32, size: u32 },
    #[error("xattr with the unknown prefix {kind:#06x}; readers ignore it")]
    XattrPrefix { kind: u16 },
    #[error(
        "xattr set {index} ({count} xattrs) states a size of {size} bytes but has {found}; readers ignore the size"
    )]
    XattrSize {
        index: u32,
        count: u32,
        size: u32,
        found: u64,
    },
    #[error("xattr value of {len} bytes; at most {limit} are allowed")]
    XattrValue { len: u32, limit: u32 },
    #[error("xattr {name:?}: {source}")]
    XattrName { name: String, source: NameError },
    #[error("the reference to an xattr value stored elsewhere has {len} bytes instead of 8")]
    XattrReference { len: u32 },
    #[error("link count 0")]
    NoLinks,
    #[error("inode number {number} is not between 1 and the number of inodes, {inodes}")]
    InodeNumber { number: u32, inodes: u32 },
    #[error("the export table says {found} for inode {number}, which is at {expected}")]
    Export {
        number: u32,
        found: Reference,
        expected: Reference,
    },
}

impl Check {
    pub fn at(self, node: Option<NodeId>, offset: u64) -> Error {
        Corrupt::new("squashfs", node, offset, self).into()
    }
}
