//! Encodes contents that the image itself stores: full blocks, and a short tail that follows its
//! inode.

use super::flat::{Entry, Flat, FlatTree, NodeBody};
use crate::ondisk::kind;
use crate::verity::BLOCK;

/// Length of a directory entry without its name.
const DIRENT: usize = 12;

/// Longest tail that follows its inode.
const TAIL: usize = BLOCK / 2;

/// log2 of the largest chunk in blocks. Chunks form the hole that replaces an object's contents.
const CHUNK_BITS_MAX: u32 = 31;

/// Unit of inode offsets.
pub const SLOT: usize = 32;

/// Marks a hole in place of a chunk's address.
const NO_BLOCK: [u8; 4] = [0xff; 4];

/// How an inode stores its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Plain,
    Inline,
    Chunks,
}

impl Layout {
    pub const fn number(self) -> u16 {
        match self {
            Self::Plain => 0,
            Self::Inline => 2,
            Self::Chunks => 4,
        }
    }
}

/// Sizes of an inode's contents.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub layout: Layout,
    /// The size field of the inode.
    pub size: u64,
    /// Number of bytes after the inode.
    pub tail: usize,
    pub blocks: usize,
    /// log2 of the chunk size in blocks, for an inode that stores neither block address nor device.
    pub chunk_bits: u32,
    /// Number of bytes from the start of the inode that must not cross a block border; 0 if only
    /// the tail must not. Some kernels read the target of a symbolic link only if it is in the
    /// inode's block.
    pub whole: usize,
}

impl Shape {
    const EMPTY: Self = Self {
        layout: Layout::Plain,
        size: 0,
        tail: 0,
        blocks: 0,
        chunk_bits: 0,
        whole: 0,
    };

    /// Computes the shape of an inode that takes `meta` bytes with its attributes. Returns `None`
    /// for a file that is too large.
    pub fn new(inode: &Flat, meta: usize) -> Option<Self> {
        Some(match &inode.body {
            NodeBody::Inline(bytes) if inode.mode & kind::MASK == kind::SYMLINK => {
                Self::of_link(bytes.len(), meta)
            }
            NodeBody::Directory(entries) => {
                let len = directory_len(entries);
                let mut shape = Self::of_bytes(len);
                if shape.layout == Layout::Plain {
                    shape.size = forerun_io::u64_from(shape.blocks * BLOCK);
                }
                shape
            }
            NodeBody::Inline(bytes) => Self::of_bytes(bytes.len()),
            NodeBody::Object { size } => Self::of_object(*size, meta)?,
            NodeBody::Device(_) | NodeBody::Empty => Self::EMPTY,
        })
    }

    fn of_bytes(len: usize) -> Self {
        let (blocks, tail) = (len / BLOCK, len % BLOCK);
        let size = forerun_io::u64_from(len);
        let shape = Self {
            size,
            blocks,
            tail,
            ..Self::EMPTY
        };
        match tail {
            0 => shape,
            1..=TAIL => Self {
                layout: Layout::Inline,
                ..shape
            },
            _ => Self {
                blocks: blocks + 1,
                tail: 0,
                ..shape
            },
        }
    }

    /// Computes the shape of a symbolic link. Its target follows the inode if both fit into one
    /// block. A longer target has its own block, and its inode starts at a block border.
    fn of_link(len: usize, meta: usize) -> Self {
        let fits = meta + len <= BLOCK;
        Self {
            layout: if fits { Layout::Inline } else { Layout::Plain },
            size: forerun_io::u64_from(len),
            tail: if fits { len } else { 0 },
            blocks: usize::from(!fits),
            whole: meta + len,
            ..Self::EMPTY
        }
    }

    /// Computes the shape of an object: a hole of its size, in as few chunks as the format allows.
    /// Returns `None` if the addresses of the chunks do not fit into one block.
    fn of_object(size: u64, meta: usize) -> Option<Self> {
        let log2 = u64::BITS - size.saturating_sub(1).leading_zeros();
        let chunk_bits = log2.saturating_sub(BLOCK.ilog2()).min(CHUNK_BITS_MAX);
        let chunks = size.div_ceil(1 << (chunk_bits + BLOCK.ilog2()));
        let tail = forerun_io::usize_from(chunks).checked_mul(NO_BLOCK.len())?;
        // The attributes reach this far into that block.
        let used = if chunks == 1 { 0 } else { meta % SLOT };
        (used + tail <= BLOCK).then_some(Self {
            layout: Layout::Chunks,
            size,
            tail,
            chunk_bits,
            ..Self::EMPTY
        })
    }
}

/// Computes the length of a directory. All blocks except the last are padded.
fn directory_len(entries: &[Entry]) -> usize {
    let mut full = 0;
    let mut len = 0;
    for entry in entries {
        let more = DIRENT + entry.name.len();
        if len + more > BLOCK {
            full += BLOCK;
            len = 0;
        }
        len += more;
    }
    full + len
}

/// Returns the bytes of an inode's contents, blocks and tail together.
pub fn bytes(inode: &Flat, shape: &Shape, tree: &FlatTree, nids: &[u64]) -> Vec<u8> {
    match &inode.body {
        NodeBody::Directory(entries) => directory_bytes(entries, tree, nids),
        NodeBody::Inline(bytes) => bytes.clone(),
        NodeBody::Object { .. } => NO_BLOCK.repeat(shape.tail / NO_BLOCK.len()),
        NodeBody::Device(_) | NodeBody::Empty => Vec::new(),
    }
}

fn directory_bytes(entries: &[Entry], tree: &FlatTree, nids: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = entries;
    while !rest.is_empty() {
        let mut len = 0;
        let fits = |entry: &&Entry| {
            len += DIRENT + entry.name.len();
            len <= BLOCK
        };
        let count = rest.iter().take_while(fits).count();
        // Names are checked to be far shorter than a block.
        let (now, later) = rest.split_at(count.max(1));
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        directory_block(now, tree, nids, &mut bytes);
        rest = later;
    }
    bytes
}

fn directory_block(entries: &[Entry], tree: &FlatTree, nids: &[u64], bytes: &mut Vec<u8>) {
    let mut name_at = entries.len() * DIRENT;
    for entry in entries {
        bytes.extend(nids[entry.inode].to_le_bytes());
        bytes.extend(u16::try_from(name_at).unwrap_or(0).to_le_bytes());
        bytes.push(file_type(tree.inodes[entry.inode].mode));
        bytes.push(0);
        name_at += entry.name.len();
    }
    for entry in entries {
        bytes.extend(&entry.name);
    }
}

/// Returns the file type in a directory entry.
const fn file_type(mode: u16) -> u8 {
    match mode & kind::MASK {
        kind::REGULAR => 1,
        kind::DIRECTORY => 2,
        kind::CHAR => 3,
        kind::BLOCK => 4,
        kind::FIFO => 5,
        kind::SOCKET => 6,
        kind::SYMLINK => 7,
        _ => 0,
    }
}
