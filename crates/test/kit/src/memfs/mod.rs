//! A filesystem in memory of which a test can set every detail, valid or hostile.
//!
//! [`MemFsBuilder`] lays out an image: each [`Piece`] of a file becomes one kind of
//! [`Place`](forerun_vfs::Place). The result is a [`MemImage`]: the driver and the bytes of the
//! image, separately, as the engine takes them. [`MemFs::content`] returns the expected contents of
//! a file without an engine.
//!
//! The `raw_*` methods check nothing: gaps and overlaps between extents, blocks outside the image,
//! directories that contain themselves, names with slashes.

mod builder;
mod driver;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use forerun_io::{MemorySource, u64_from, usize_from};
use forerun_vfs::{
    EncodedBlock, Extent, FileSystem, FileType, Metadata, NodeId, Timestamp, VolumeInfo,
};

pub use builder::MemFsBuilder;

/// A part of a file's contents, and how the image stores it.
#[derive(Clone, Debug)]
pub enum Piece {
    /// A hole of this many bytes.
    Zero(u64),
    /// Uncompressed bytes.
    Stored(Vec<u8>),
    /// Bytes compressed with zlib in blocks of `block_len` decoded bytes. The last block may be
    /// shorter.
    Encoded {
        bytes: Vec<u8>,
        /// Decoded bytes of a block.
        block_len: usize,
    },
    /// Bytes stored with the metadata.
    Inline(Vec<u8>),
    /// A part of a block made by [`MemFsBuilder::encode`], as formats store the tails of files.
    Fragment {
        /// The block, which several files may share.
        block: EncodedBlock,
        /// Bytes of the decoded block before this part.
        skip: u32,
        /// The decoded bytes of this part.
        bytes: Vec<u8>,
    },
}

#[derive(Clone, Debug)]
pub struct MemImage {
    pub fs: Arc<MemFs>,
    /// The bytes to which the extents point.
    pub source: MemorySource,
}

impl MemImage {
    pub fn driver(&self) -> Arc<dyn FileSystem> {
        Arc::<MemFs>::clone(&self.fs)
    }
}

/// The driver. All nodes are in memory; no call reads the source.
#[derive(Debug)]
pub struct MemFs {
    nodes: Vec<MemFsNode>,
    volume: VolumeInfo,
    clamp: bool,
    metadata_ranges: Vec<Range<u64>>,
    shares_blocks: bool,
    on_map: Option<OnMap>,
}

/// Called with the arguments of `map`. Returns the ranges to map instead of the requested one.
#[derive(Clone)]
struct OnMap(Arc<MapHook>);

type MapHook = dyn Fn(NodeId, Range<u64>) -> Vec<Range<u64>> + Send + Sync;

impl std::fmt::Debug for OnMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnMap")
    }
}

#[derive(Clone, Debug)]
struct MemFsNode {
    metadata: Metadata,
    entries: Vec<(Vec<u8>, NodeId)>,
    names: BTreeMap<Vec<u8>, NodeId>,
    extents: Vec<Extent>,
    content: Vec<Content>,
    target: Vec<u8>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    damaged: bool,
}

/// The expected contents of a piece of a file.
#[derive(Clone, Debug)]
struct Content {
    logical: Range<u64>,
    /// `None` reads as zeros.
    bytes: Option<Arc<[u8]>>,
}

/// The check that fails for a node passed to [`MemFsBuilder::damage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged on purpose")]
pub struct DamagedOnPurpose;

impl MemFsNode {
    fn new(kind: FileType, mode: u16) -> Self {
        Self {
            metadata: Metadata {
                kind,
                mode,
                uid: 0,
                gid: 0,
                size: 0,
                nlink: 1,
                mtime: Timestamp::default(),
                device: forerun_vfs::Device::default(),
            },
            entries: Vec::new(),
            names: BTreeMap::new(),
            extents: Vec::new(),
            content: Vec::new(),
            target: Vec::new(),
            xattrs: Vec::new(),
            damaged: false,
        }
    }
}

impl MemFs {
    /// Returns the expected contents of `range` of a file, clamped to its size.
    pub fn content(&self, node: NodeId, range: Range<u64>) -> Vec<u8> {
        let node = self.node(node).expect("a node of this filesystem");
        let end = range.end.min(node.metadata.size);
        let start = range.start.min(end);
        let mut out = vec![0; usize_from(end - start)];
        for piece in &node.content {
            let (from, to) = (piece.logical.start.max(start), piece.logical.end.min(end));
            if let (Some(bytes), true) = (&piece.bytes, from < to) {
                let skip = usize_from(from - piece.logical.start);
                let at = usize_from(from - start);
                let len = usize_from(to - from);
                out[at..at + len].copy_from_slice(&bytes[skip..skip + len]);
            }
        }
        out
    }

    /// Iterates over all nodes in the order in which they were made, root first.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        (1..=u64_from(self.nodes.len())).map(NodeId)
    }

    /// Finds a node. Ids count from 1, so that an id used as an index is a mistake that shows.
    fn node(&self, id: NodeId) -> Option<&MemFsNode> {
        let index = id.0.checked_sub(1)?;
        self.nodes.get(usize::try_from(index).ok()?)
    }
}
