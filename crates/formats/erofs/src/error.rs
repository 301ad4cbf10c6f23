//! The checks an image can fail, one variant each.

use forerun_codec::DecodeError;
use forerun_vfs::{Corrupt, Error, NameError, NodeId};

/// A failed check, with the numbers needed to find the bytes. The offset of the structure is stored
/// beside it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Check {
    #[error("the image is {len} bytes long; a superblock ends at {need}")]
    ShortSuperblock { len: u64, need: u64 },
    #[error("the superblock's checksum is {found:#010x}, its bytes give {actual:#010x}")]
    Checksum { found: u32, actual: u32 },
    #[error("block size 2^{bits}; from 2^9 to 2^16 are allowed")]
    BlockSize { bits: u8 },
    #[error("{slots} extension slots; {most} are allowed")]
    ExtensionSlots { slots: u8, most: u8 },
    #[error("{len} bytes of settings for the compressor {name}; {need} are needed")]
    CompressorConfig {
        name: &'static str,
        len: u16,
        need: usize,
    },
    #[error("{what} at {start:#x}..{end:#x}; the image ends at {image:#x}")]
    Outside {
        what: &'static str,
        start: u64,
        end: u64,
        image: u64,
    },
    #[error("the {what} is said to be node {nid}, which is outside the image")]
    NodeOutside { what: &'static str, nid: u64 },
    #[error("entry {name:?} leads to node {nid}, which is outside the image")]
    EntryNode { name: String, nid: u64 },
    #[error("the root is not a directory")]
    RootKind,
    #[error("the {what} is not a regular file")]
    SpecialKind { what: &'static str },
    #[error("the {what} keeps its data in itself")]
    SpecialInItself { what: &'static str },
    #[error("mode {mode:#o} is of no known kind of file")]
    InodeKind { mode: u16 },
    #[error("file of {size} bytes; 2^62 are the most")]
    HugeFile { size: u64 },
    #[error("the end of the file, {len} bytes at {start:#x}, crosses into another block")]
    InlineTail { start: u64, len: u64 },
    #[error("the times of the image count from {epoch} s, too late")]
    Epoch { epoch: i64 },
    #[error("{nanoseconds} nanoseconds to a second")]
    Nanoseconds { nanoseconds: u32 },
    #[error("device {device} of {count}")]
    Device { device: u16, count: usize },
    #[error("symbolic link of {size} bytes; from 1 to {limit} are allowed")]
    SymlinkLen { size: u64, limit: u64 },
    #[error("the target of the symbolic link contains a NUL byte")]
    SymlinkNul,
    #[error("first name of the directory block at {nameoff}, in a block of {len} bytes")]
    FirstName { nameoff: u16, len: usize },
    #[error("name {index} of the directory block at {start}..{end}, in a block of {len} bytes")]
    NameRange {
        index: usize,
        start: usize,
        end: usize,
        len: usize,
    },
    #[error("{source}: {name:?}")]
    Name { name: String, source: NameError },
    #[error("entry {name:?} comes after {before:?}; names must be in order and different")]
    NameOrder { name: String, before: String },
    #[error("entry {name:?} is of unknown type {found}")]
    EntryType { name: String, found: u8 },
    #[error("entry {name:?} says {says}, its inode is a {found}")]
    EntryKind {
        name: String,
        says: &'static str,
        found: &'static str,
    },
    #[error("the xattrs take {len} bytes, too few for {what}")]
    XattrRoom { len: u64, what: &'static str },
    #[error("xattr of unknown prefix {index:#04x}, which readers pass over")]
    XattrPrefix { index: u8 },
    #[error("{source} as the name of an xattr: {name:?}")]
    XattrName { name: String, source: NameError },
    #[error("long xattr prefix {index} is empty")]
    LongPrefix { index: usize },
    #[error("long xattr prefix {index} has {len} bytes; {most} are allowed")]
    LongPrefixLen {
        index: usize,
        len: usize,
        most: usize,
    },
    #[error("shared xattrs are said to be in a metabox, and the image has none")]
    NoMetabox,
    #[error("ishare_xattr_prefix_id is {id}, of {count} long xattr prefixes")]
    SharePrefix { id: u8, count: u8 },
    #[error("packed_nid is {nid}, which is no inode")]
    PackedNode { nid: u64 },
    #[error(
        "device {number} has {blocks} blocks from block {first} on: they end behind the largest offset"
    )]
    DeviceEnd {
        number: usize,
        first: u64,
        blocks: u64,
    },
    #[error("entry {number} of the device table is empty")]
    EmptyDevice { number: usize },
    #[error("a fragment of a file leads to {start}..{end} of the packed inode, which has {size}")]
    Fragment { start: u64, end: u64, size: u64 },
    #[error("part of the packed inode is in the packed inode")]
    FragmentLoop,
    #[error("the image has no packed inode, which a file refers to")]
    NoPackedInode,
    #[error("block of {len} bytes that holds {decoded}: {source}")]
    Decode {
        len: u32,
        decoded: u32,
        source: DecodeError,
    },
    #[error("byte {skip} and on of a block that holds {decoded}")]
    DecodedShort { skip: u32, decoded: usize },
    #[error("nothing covers byte {at} of the data of the inode")]
    Gap { at: u64 },
    #[error("reserved field {field} is {value:#x}")]
    Reserved { field: &'static str, value: u64 },
    #[error("link count {nlink}, where the entries for subdirectories ({found}) make it two more")]
    DirectoryLinks { nlink: u32, found: u64 },
    #[error("link count 0")]
    NoLinks,
    #[error("entry {name:?} leads to node {found}, not to {expected}")]
    DotEntry {
        name: &'static str,
        found: u64,
        expected: u64,
    },
    #[error("entry {name:?} is missing")]
    NoDotEntry { name: &'static str },
}

impl Check {
    /// Creates the error of this check, failed on the structure at `offset`.
    pub fn at(self, node: Option<NodeId>, offset: u64) -> Error {
        Corrupt::new("erofs", node, offset, self).into()
    }
}
