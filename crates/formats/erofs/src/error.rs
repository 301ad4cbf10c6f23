//! The checks an image can fail, one variant each.

use forerun_codec::DecodeError;
use forerun_vfs::{Corrupt, Error, NameError, NodeId};

/// A failed check, with the numbers needed to find the bytes. The structure's offset is stored next
/// to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Check {
    #[error("the image is {len} bytes long; a superblock ends at {need}")]
    ShortSuperblock { len: u64, need: u64 },
    #[error("the superblock stores the checksum {found:#010x}, but its bytes have {actual:#010x}")]
    Checksum { found: u32, actual: u32 },
    #[error("block size 2^{bits}; from 2^9 to 2^16 are allowed")]
    BlockSize { bits: u8 },
    #[error("{slots} extension slots; at most {most} are allowed")]
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
    #[error("the superblock names node {nid} as the {what}; that is outside the image")]
    NodeOutside { what: &'static str, nid: u64 },
    #[error("entry {name:?} leads to node {nid}, which is outside the image")]
    EntryNode { name: String, nid: u64 },
    #[error("the root is not a directory")]
    RootKind,
    #[error("the {what} is not a regular file")]
    SpecialKind { what: &'static str },
    #[error("the {what} has inline data, which is not allowed for it")]
    SpecialInItself { what: &'static str },
    #[error("mode {mode:#o} has no known file type")]
    InodeKind { mode: u16 },
    #[error("the file size {size} is above the limit of 2^62 bytes")]
    HugeFile { size: u64 },
    #[error("the inline end of the file, {len} bytes at {start:#x}, crosses a block boundary")]
    InlineTail { start: u64, len: u64 },
    #[error("the image's epoch {epoch} is too large")]
    Epoch { epoch: i64 },
    #[error("{nanoseconds} nanoseconds are more than a second")]
    Nanoseconds { nanoseconds: u32 },
    #[error("there is no device {device}; the image has {count}")]
    Device { device: u16, count: usize },
    #[error("symbolic link of {size} bytes; from 1 to {limit} are allowed")]
    SymlinkLen { size: u64, limit: u64 },
    #[error("the target of the symbolic link contains a NUL byte")]
    SymlinkNul,
    #[error(
        "the first name of the directory block is at offset {nameoff} of a block of {len} bytes"
    )]
    FirstName { nameoff: u16, len: usize },
    #[error("name {index} of the directory block is at {start}..{end} of a block of {len} bytes")]
    NameRange {
        index: usize,
        start: usize,
        end: usize,
        len: usize,
    },
    #[error("{source}: {name:?}")]
    Name { name: String, source: NameError },
    #[error("entry {name:?} follows {before:?}, but names must be unique and in order")]
    NameOrder { name: String, before: String },
    #[error("entry {name:?} is of unknown type {found}")]
    EntryType { name: String, found: u8 },
    #[error("entry {name:?} has the type {says}, but its inode is a {found}")]
    EntryKind {
        name: String,
        says: &'static str,
        found: &'static str,
    },
    #[error("the xattrs have {len} bytes, too few for {what}")]
    XattrRoom { len: u64, what: &'static str },
    #[error("xattr with the unknown prefix {index:#04x}; readers ignore it")]
    XattrPrefix { index: u8 },
    #[error("xattr {name:?}: {source}")]
    XattrName { name: String, source: NameError },
    #[error("long xattr prefix {index} is empty")]
    LongPrefix { index: usize },
    #[error("long xattr prefix {index} has {len} bytes; at most {most} are allowed")]
    LongPrefixLen {
        index: usize,
        len: usize,
        most: usize,
    },
    #[error("the superblock puts shared xattrs into a metabox, but the image has none")]
    NoMetabox,
    #[error("ishare_xattr_prefix_id is {id}, but the image has {count} long xattr prefixes")]
    SharePrefix { id: u8, count: u8 },
    #[error("packed_nid {nid} is not an inode")]
    PackedNode { nid: u64 },
    #[error(
        "device {number} has {blocks} blocks from block {first}, which end past the largest offset"
    )]
    DeviceEnd {
        number: usize,
        first: u64,
        blocks: u64,
    },
    #[error("entry {number} of the device table is empty")]
    EmptyDevice { number: usize },
    #[error("a fragment is at {start}..{end} of the packed inode, which has {size} bytes")]
    Fragment { start: u64, end: u64, size: u64 },
    #[error("a fragment of the packed inode is in the packed inode itself")]
    FragmentLoop,
    #[error("a file has a fragment, but the image has no packed inode")]
    NoPackedInode,
    #[error("compressed block of {len} bytes, {decoded} decoded: {source}")]
    Decode {
        len: u32,
        decoded: u32,
        source: DecodeError,
    },
    #[error("the extent begins at byte {skip} of a block that decodes to {decoded} bytes")]
    DecodedShort { skip: u32, decoded: usize },
    #[error("no block covers byte {at} of the inode's data")]
    Gap { at: u64 },
    #[error("reserved field {field} is {value:#x}")]
    Reserved { field: &'static str, value: u64 },
    #[error(
        "link count {nlink} of a directory with {found} subdirectories; it should be {found} plus 2"
    )]
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
    pub fn at(self, node: Option<NodeId>, offset: u64) -> Error {
        Corrupt::new("erofs", node, offset, self).into()
    }
}
