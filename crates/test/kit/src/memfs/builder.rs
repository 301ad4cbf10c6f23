//! Lays out a [`MemFs`] and its image.

use std::ops::Range;
use std::sync::Arc;

use forerun_io::{BlobId, MemorySource, u64_from, usize_from};
use libdeflater::{CompressionLvl, Compressor};

use forerun_vfs::{
    Codec, DecodedLen, Device, EncodedBlock, Extent, FileType, Metadata, NodeId, Padding, Place,
    VolumeInfo, is_acl,
};

use super::{Content, MemFs, MemFsNode, MemImage, OnMap, Piece};

/// Makes a [`MemImage`]. Paths are relative to the root and have no leading slash; missing parents
/// are made. Node ids are assigned in order: the root is `NodeId(1)`.
#[derive(Debug, Clone)]
pub struct MemFsBuilder {
    nodes: Vec<MemFsNode>,
    image: Vec<u8>,
    align: usize,
    volume: VolumeInfo,
    clamp: bool,
    metadata_ranges: Vec<Range<u64>>,
    on_map: Option<OnMap>,
    shares_blocks: bool,
}

impl Default for MemFsBuilder {
    fn default() -> Self {
        Self {
            nodes: vec![MemFsNode::new(FileType::Directory, 0o755)],
            // The first bytes belong to no file, as in real images, so that an offset of 0 is a
            // mistake.
            image: vec![0xEE; 512],
            align: 1,
            volume: VolumeInfo::new("memfs", 0, 1024),
            clamp: true,
            metadata_ranges: Vec::new(),
            on_map: None,
            shares_blocks: false,
        }
    }
}

impl MemFsBuilder {
    pub const ROOT: NodeId = NodeId(1);

    pub fn new() -> Self {
        Self::default()
    }

    /// Places everything that follows at multiples of `align` bytes in the image. The default is 1.
    pub const fn align(&mut self, align: usize) -> &mut Self {
        self.align = align;
        self
    }

    /// Sets whether extents are clamped to the requested range (the default) or extend past it.
    pub const fn clamp_extents(&mut self, clamp: bool) -> &mut Self {
        self.clamp = clamp;
        self
    }

    /// Sets the result of `volume`, except the length of the image.
    pub fn volume(&mut self, volume: VolumeInfo) -> &mut Self {
        self.volume = volume;
        self
    }

    /// Sets the result of `metadata_ranges`.
    pub fn metadata_ranges(&mut self, ranges: Vec<Range<u64>>) -> &mut Self {
        self.metadata_ranges = ranges;
        self
    }

    /// Calls `hook` with the arguments of each call of `map`, and maps the ranges that it returns.
    pub fn on_map(
        &mut self,
        hook: impl Fn(NodeId, Range<u64>) -> Vec<Range<u64>> + Send + Sync + 'static,
    ) -> &mut Self {
        self.on_map = Some(OnMap(Arc::new(hook)));
        self
    }

    /// Makes `shares_blocks` return true.
    pub const fn shares_blocks(&mut self) -> &mut Self {
        self.shares_blocks = true;
        self
    }

    pub fn dir(&mut self, path: &str) -> NodeId {
        let mut dir = Self::ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let found = self.node(dir).names.get(name.as_bytes()).copied();
            dir = found.unwrap_or_else(|| {
                let made = self.push(MemFsNode::new(FileType::Directory, 0o755));
                self.raw_entry(dir, name.as_bytes(), made);
                made
            });
        }
        dir
    }

    /// Makes a regular file of mode 0644 from pieces.
    pub fn file(&mut self, path: &str, pieces: impl IntoIterator<Item = Piece>) -> NodeId {
        let mut node = MemFsNode::new(FileType::Regular, 0o644);
        for piece in pieces {
            self.add_piece(&mut node, piece);
        }
        self.insert(path, node)
    }

    pub fn symlink(&mut self, path: &str, target: &[u8]) -> NodeId {
        let mut node = MemFsNode::new(FileType::Symlink, 0o777);
        node.metadata.size = u64_from(target.len());
        node.target = target.to_vec();
        self.insert(path, node)
    }

    pub fn special(&mut self, path: &str, kind: FileType, device: Device) -> NodeId {
        let mut node = MemFsNode::new(kind, 0o600);
        node.metadata.device = device;
        self.insert(path, node)
    }

    /// Adds a name to a node.
    pub fn hard_link(&mut self, path: &str, target: NodeId) {
        let (dir, name) = self.parent(path);
        self.raw_entry(dir, name.as_bytes(), target);
        self.node_mut(target).metadata.nlink += 1;
    }

    /// Changes a node's metadata. The size of a file must match its pieces, unless the image is
    /// meant to be hostile.
    pub fn metadata(&mut self, node: NodeId, change: impl FnOnce(&mut Metadata)) -> &mut Self {
        change(&mut self.node_mut(node).metadata);
        self
    }

    pub fn xattr(&mut self, node: NodeId, name: &[u8], value: &[u8]) -> &mut Self {
        self.volume.has_xattrs = true;
        self.volume.has_acls |= is_acl(name);
        let pair = (name.to_vec(), value.to_vec());
        self.node_mut(node).xattrs.push(pair);
        self
    }

    /// Makes every call for this node fail with [`Corrupt`](forerun_vfs::Corrupt).
    pub fn damage(&mut self, node: NodeId) -> &mut Self {
        self.node_mut(node).damaged = true;
        self
    }

    /// Appends bytes to the image. Returns their offset.
    pub fn store(&mut self, bytes: &[u8]) -> u64 {
        self.image
            .resize(self.image.len().next_multiple_of(self.align), 0xEE);
        let offset = u64_from(self.image.len());
        self.image.extend_from_slice(bytes);
        offset
    }

    /// Appends a compressed block to the image, to which [`Piece::Fragment`] can refer.
    pub fn encode(&mut self, bytes: &[u8]) -> EncodedBlock {
        let encoded = zlib(bytes);
        EncodedBlock {
            blob: BlobId::IMAGE,
            offset: self.store(&encoded),
            len: u32::try_from(encoded.len()).unwrap(),
            codec: Codec::Zlib,
            decoded_len: DecodedLen::Exact(u32::try_from(bytes.len()).unwrap()),
            padding: Padding::None,
        }
    }

    /// Makes a file with exactly these extents, without checks. Its expected contents are unknown.
    pub fn raw_file(&mut self, path: &str, size: u64, extents: Vec<Extent>) -> NodeId {
        let mut node = MemFsNode::new(FileType::Regular, 0o644);
        node.metadata.size = size;
        node.extents = extents;
        self.insert(path, node)
    }

    /// Adds an entry to a directory without checks: loops, invalid names, duplicates (lookups find
    /// the first), unknown ids.
    pub fn raw_entry(&mut self, dir: NodeId, name: &[u8], node: NodeId) -> &mut Self {
        let dir = self.node_mut(dir);
        dir.entries.push((name.to_vec(), node));
        dir.names.entry(name.to_vec()).or_insert(node);
        self
    }

    /// Changes bytes of the image as laid out so far, for example to damage a compressed block.
    pub fn raw_image(&mut self, range: Range<u64>, change: impl FnOnce(&mut [u8])) -> &mut Self {
        let range = usize_from(range.start)..usize_from(range.end);
        change(&mut self.image[range]);
        self
    }

    pub fn build(mut self) -> MemImage {
        self.volume.image_len = u64_from(self.image.len());
        MemImage {
            fs: Arc::new(MemFs {
                nodes: self.nodes,
                volume: self.volume,
                clamp: self.clamp,
                metadata_ranges: self.metadata_ranges,
                on_map: self.on_map,
                shares_blocks: self.shares_blocks,
            }),
            source: MemorySource::new(self.image),
        }
    }

    fn add_piece(&mut self, node: &mut MemFsNode, piece: Piece) {
        match piece {
            Piece::Zero(len) => push_extent(node, len, Place::Zero, None),
            Piece::Stored(bytes) => {
                let offset = self.store(&bytes);
                let blob = BlobId::IMAGE;
                push_bytes(node, bytes, Place::Stored { blob, offset });
            }
            Piece::Encoded { bytes, block_len } => {
                for chunk in bytes.chunks(block_len) {
                    let block = self.encode(chunk);
                    push_bytes(node, chunk.to_vec(), Place::Encoded { block, skip: 0 });
                }
            }
            Piece::Inline(bytes) => {
                let place = Place::Inline(Arc::from(bytes.as_slice()));
                push_bytes(node, bytes, place);
            }
            Piece::Fragment { block, skip, bytes } => {
                push_bytes(node, bytes, Place::Encoded { block, skip });
            }
        }
    }

    fn insert(&mut self, path: &str, node: MemFsNode) -> NodeId {
        let (dir, name) = self.parent(path);
        let id = self.push(node);
        self.raw_entry(dir, name.as_bytes(), id);
        id
    }

    fn parent<'p>(&mut self, path: &'p str) -> (NodeId, &'p str) {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        assert!(!name.is_empty(), "{path:?} names nothing");
        (self.dir(parent), name)
    }

    fn push(&mut self, node: MemFsNode) -> NodeId {
        self.nodes.push(node);
        NodeId(u64_from(self.nodes.len()))
    }

    fn node(&self, id: NodeId) -> &MemFsNode {
        &self.nodes[usize_from(id.0 - 1)]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut MemFsNode {
        &mut self.nodes[usize_from(id.0 - 1)]
    }
}

fn push_bytes(node: &mut MemFsNode, bytes: Vec<u8>, place: Place) {
    push_extent(node, u64_from(bytes.len()), place, Some(bytes.into()));
}

/// Adds an extent, unless the piece is empty, because extents never are.
fn push_extent(node: &mut MemFsNode, len: u64, place: Place, bytes: Option<Arc<[u8]>>) {
    if len == 0 {
        return;
    }
    let logical = node.metadata.size..node.metadata.size + len;
    node.metadata.size = logical.end;
    node.content.push(Content {
        logical: logical.clone(),
        bytes,
    });
    node.extents.push(Extent { logical, place });
}

/// Compresses `bytes` with zlib even if the result is longer; a writer's encoder gives up then.
fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut compressor = Compressor::new(CompressionLvl::default());
    let mut encoded = vec![0; compressor.zlib_compress_bound(bytes.len())];
    let len = compressor.zlib_compress(bytes, &mut encoded).unwrap();
    encoded.truncate(len);
    encoded
}
