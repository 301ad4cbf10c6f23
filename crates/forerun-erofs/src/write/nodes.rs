//! Inodes and listings: first all are placed, then all are written, in the order of their places.

use std::collections::HashMap;

use forerun_engine::build::{BuildError, NewNode, NodeIndex, NodeKind, Tree};
use forerun_io::{saturating_usize, u64_from};

use super::cannot;
use super::data::{Body, Data, HOLE};
use super::dir::Listing;
use super::index::{self, Format};
use super::inode::{Fields, Layout, core_len, device, encode};
use super::options::ErofsOptions;
use super::place::{Item, Placer, SLOT};
use super::plan::{Dir, Plan};
use super::shape::{Shapes, size};
use super::xattr::{self, Xattrs};

/// In the description of chunks: their places have eight bytes, with a device.
const WIDE_CHUNKS: u32 = 0x20;
/// The one device besides the image.
const DEVICE: u16 = 1;

/// Everything that inodes are made from.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    pub tree: &'a Tree,
    pub plan: &'a Plan<'a>,
    pub xattrs: &'a Xattrs,
    pub shapes: &'a Shapes,
    pub options: &'a ErofsOptions,
    pub format: Format,
}

/// Takes bytes and where they go.
type Write<'w> = dyn FnMut(u64, &[u8]) -> Result<(), BuildError> + 'w;

/// Where everything is.
pub struct Nodes<'a> {
    parts: Parts<'a>,
    /// Bytes from the start of the block of the first inode.
    places: HashMap<NodeIndex, u64>,
    /// Listings and targets that are not behind their inodes.
    blocks: HashMap<NodeIndex, u64>,
    /// What is where, in bytes of the image.
    pieces: Vec<(u64, Piece)>,
    dirs: HashMap<NodeIndex, usize>,
    base: u64,
    pub end: u64,
}

#[derive(Clone, Copy)]
enum Piece {
    Inode(NodeIndex),
    /// The whole blocks of a listing or target.
    Blocks(NodeIndex),
}

/// How the data of an inode lie in it.
struct Stored {
    layout: Layout,
    union: u32,
    /// Indexes.
    indexes: Vec<u8>,
    inline: Vec<u8>,
}

impl Stored {
    const fn plain(union: u32) -> Self {
        Self {
            layout: Layout::Plain,
            union,
            indexes: Vec::new(),
            inline: Vec::new(),
        }
    }
}

impl<'a> Nodes<'a> {
    /// Places everything from `start` on. Without data, only where the length of every inode follows
    /// from the tree and the options.
    pub fn place(parts: Parts<'a>, data: Option<&Data>, start: u64) -> Self {
        let block = u64::from(parts.options.block_size);
        let plan = parts.plan;
        let mut nodes = Self {
            parts,
            places: HashMap::with_capacity(plan.inodes.len()),
            blocks: HashMap::new(),
            pieces: Vec::with_capacity(plan.inodes.len()),
            dirs: HashMap::with_capacity(plan.dirs.len()),
            base: start - start % block,
            end: 0,
        };
        for (at, dir) in plan.dirs.iter().enumerate() {
            nodes.dirs.insert(dir.node, at);
        }
        let mut placer = Placer::new(start, block);
        nodes.place_inode(Tree::ROOT, data, &mut placer);
        for dir in &plan.dirs {
            nodes.place_blocks(dir.node, &mut placer);
            for (_, child) in parts.tree.children(dir.node) {
                if !nodes.places.contains_key(&child) {
                    nodes.place_inode(child, data, &mut placer);
                    if matches!(parts.tree.node(child).kind, NodeKind::Symlink(_)) {
                        nodes.place_blocks(child, &mut placer);
                    }
                }
            }
        }
        nodes.pieces.sort_unstable_by_key(|(at, _)| *at);
        nodes.end = placer.end();
        nodes
    }

    /// Number of an inode.
    pub fn nid(&self, node: NodeIndex) -> u64 {
        self.places.get(&node).copied().unwrap_or(0) / SLOT
    }

    /// The bytes of all inodes, listings and targets, in order. Blocks of data count from `base`.
    pub fn write(&self, data: &Data, base: u32, out: &mut Write<'_>) -> Result<(), BuildError> {
        for &(at, piece) in &self.pieces {
            let bytes = match piece {
                Piece::Inode(node) => self.inode(node, data, base)?,
                Piece::Blocks(node) => {
                    let mut bytes = self.contents(node);
                    bytes.truncate(saturating_usize(self.in_blocks(node)));
                    bytes
                }
            };
            out(at, &bytes)?;
        }
        Ok(())
    }

    fn place_inode(&mut self, node: NodeIndex, data: Option<&Data>, placer: &mut Placer) {
        let head = self.parts.shapes.head(node);
        let (indexes, inline) = self.behind(node, data);
        let item = Item {
            core: core_len(self.parts.shapes.is_extended(node)),
            head: head + indexes,
            inline,
        };
        let at = placer.item(item);
        self.places.insert(node, at - self.base);
        self.pieces.push((at, Piece::Inode(node)));
    }

    fn place_blocks(&mut self, node: NodeIndex, placer: &mut Placer) {
        let len = self.in_blocks(node);
        if len > 0 {
            let at = placer.blocks(len);
            self.blocks.insert(node, at);
            self.pieces.push((at, Piece::Blocks(node)));
        }
    }

    /// Length of a listing or target, and of its last block; nothing of other nodes.
    fn contents_len(&self, node: NodeIndex) -> Option<(u64, u64)> {
        let block = u64::from(self.parts.options.block_size);
        match &self.parts.tree.node(node).kind {
            NodeKind::Directory(_) => {
                let (_, listing) = self.dir(node)?;
                Some((listing.len, listing.last))
            }
            NodeKind::Symlink(target) => {
                let len = u64_from(target.len());
                Some((len, (len - 1) % block + 1))
            }
            _ => None,
        }
    }

    /// How much of a listing or target lies behind its inode.
    fn contents_inline(&self, node: NodeIndex) -> u64 {
        let block = u64::from(self.parts.options.block_size);
        let head = self.parts.shapes.head(node);
        match self.contents_len(node) {
            // A target is all there or not at all.
            Some((len, last)) if head + last <= block && self.is_whole(node, len, last) => last,
            _ => 0,
        }
    }

    fn is_whole(&self, node: NodeIndex, len: u64, last: u64) -> bool {
        len == last || matches!(self.parts.tree.node(node).kind, NodeKind::Directory(_))
    }

    /// How much of it lies in blocks.
    fn in_blocks(&self, node: NodeIndex) -> u64 {
        let len = self.contents_len(node).map_or(0, |(len, _)| len);
        len - self.contents_inline(node)
    }

    fn dir(&self, node: NodeIndex) -> Option<(&'a Dir<'a>, &'a Listing)> {
        let at = *self.dirs.get(&node)?;
        let Parts { plan, shapes, .. } = self.parts;
        Some((plan.dirs.get(at)?, shapes.listings.get(at)?))
    }

    fn contents(&self, node: NodeIndex) -> Vec<u8> {
        let Parts { tree, plan, .. } = self.parts;
        if let NodeKind::Symlink(target) = &tree.node(node).kind {
            return target.clone();
        }
        let block = self.parts.options.block();
        self.dir(node).map_or_else(Vec::new, |(dir, listing)| {
            listing.encode(tree, plan, dir, block, |node| self.nid(node))
        })
    }

    /// Lengths of what lies behind an inode: indexes, and data.
    fn behind(&self, node: NodeIndex, data: Option<&Data>) -> (u64, u64) {
        let Parts {
            tree,
            shapes,
            options,
            format,
            ..
        } = self.parts;
        let NodeKind::File { len, .. } = tree.node(node).kind else {
            return (0, self.contents_inline(node));
        };
        let head = shapes.head(node);
        match data.map(|data| data.of(node)) {
            Some((None, Some(Body::Packed(packed)))) => {
                let full = format.full || packed.scattered;
                let inline = packed.inline.map_or(0, |inline| u64_from(inline.len));
                (index::len(format, full, head, len), inline)
            }
            Some((None, Some(Body::Flat { tail, .. }))) => {
                (0, tail.map_or(0, |tail| u64_from(tail.len)))
            }
            Some((None, None)) => (0, 0),
            Some((Some(_), _)) | None => predict(options, head, len),
        }
    }

    fn inode(&self, index: NodeIndex, data: &Data, base: u32) -> Result<Vec<u8>, BuildError> {
        let Parts {
            tree,
            plan,
            xattrs,
            shapes,
            ..
        } = self.parts;
        let node = tree.node(index);
        let stored = match &node.kind {
            NodeKind::File { len, .. } => self.file(index, *len, data, base)?,
            NodeKind::Directory(_) | NodeKind::Symlink(_) => self.listed(index)?,
            NodeKind::BlockDevice(number) | NodeKind::CharDevice(number) => {
                Stored::plain(device(*number))
            }
            NodeKind::Fifo | NodeKind::Socket => Stored::plain(0),
        };
        let own = xattrs.of(index);
        let fields = Fields {
            planned: plan.node(index),
            size: self.size(index, node),
            layout: stored.layout,
            union: stored.union,
            xattr_count: xattr::count(own.len()).unwrap_or(0),
        };
        let mut bytes = encode(node, &fields, shapes.is_extended(index));
        bytes.extend_from_slice(own);
        bytes.extend_from_slice(&stored.indexes);
        bytes.extend_from_slice(&stored.inline);
        Ok(bytes)
    }

    fn size(&self, index: NodeIndex, node: &NewNode) -> u64 {
        match self.dir(index) {
            Some((_, listing)) => listing.len,
            None => size(node),
        }
    }

    fn listed(&self, node: NodeIndex) -> Result<Stored, BuildError> {
        let inline = self.contents_inline(node);
        let block = match self.blocks.get(&node) {
            Some(at) => self.block(at / u64::from(self.parts.options.block_size))?,
            None => 0,
        };
        if inline == 0 {
            return Ok(Stored::plain(block));
        }
        let start = saturating_usize(self.in_blocks(node));
        Ok(Stored {
            layout: Layout::Inline,
            inline: self.contents(node).split_off(start),
            ..Stored::plain(block)
        })
    }

    fn file(
        &self,
        node: NodeIndex,
        len: u64,
        data: &Data,
        base: u32,
    ) -> Result<Stored, BuildError> {
        let Parts {
            shapes,
            options,
            format,
            ..
        } = self.parts;
        let head = shapes.head(node);
        Ok(match data.of(node) {
            (Some(chunks), _) => {
                let wide = options.blob.is_some();
                Stored {
                    layout: Layout::Chunked,
                    union: chunk_bits(options) | if wide { WIDE_CHUNKS } else { 0 },
                    indexes: chunk_indexes(chunks, wide, head, base),
                    inline: Vec::new(),
                }
            }
            (None, Some(Body::Packed(packed))) => {
                let full = format.full || packed.scattered;
                let inline = packed.inline.map(|inline| data.tails.read(inline));
                Stored {
                    layout: match full {
                        true => Layout::CompressedFull,
                        false => Layout::CompressedCompact,
                    },
                    union: packed.blocks,
                    indexes: index::encode(format, packed, head, len, base),
                    inline: inline.transpose()?.unwrap_or_default(),
                }
            }
            (None, Some(Body::Flat { start, tail })) => {
                let start = self.block(u64::from(base) + u64::from(*start))?;
                match tail {
                    Some(tail) => Stored {
                        layout: Layout::Inline,
                        inline: data.tails.read(*tail)?,
                        ..Stored::plain(start)
                    },
                    None => Stored::plain(start),
                }
            }
            (None, None) => Stored::plain(0),
        })
    }

    fn block(&self, block: u64) -> Result<u32, BuildError> {
        u32::try_from(block).map_err(|_| cannot(format!("{block} blocks")))
    }
}

/// Lengths of what lies behind the inode of a file that is not compressed: indexes, and data.
fn predict(options: &ErofsOptions, head: u64, len: u64) -> (u64, u64) {
    let block = u64::from(options.block_size);
    let tail = len % block;
    let inline = options.inline_tails && tail > 0 && head + tail <= block;
    match options.chunk_size {
        _ if len == 0 => (0, 0),
        Some(chunk) if !inline || len > block || options.blob.is_some() => {
            let unit = if options.blob.is_some() { 8 } else { 4 };
            let start = head.next_multiple_of(unit);
            (start - head + len.div_ceil(chunk.into()) * unit, 0)
        }
        _ => (0, if inline { tail } else { 0 }),
    }
}

/// log2 of the blocks in a chunk.
const fn chunk_bits(options: &ErofsOptions) -> u32 {
    match options.chunk_size {
        Some(chunk) => chunk.ilog2() - options.block_bits(),
        None => 0,
    }
}

fn chunk_indexes(chunks: &[u32], wide: bool, head: u64, base: u32) -> Vec<u8> {
    let unit = if wide { 8 } else { 4 };
    let gap = head.next_multiple_of(unit) - head;
    let mut bytes = vec![0; saturating_usize(gap)];
    for &chunk in chunks {
        let block = match chunk {
            HOLE => HOLE,
            chunk => base.saturating_add(chunk),
        };
        if wide {
            let device = if chunk == HOLE { 0 } else { DEVICE };
            bytes.extend_from_slice(&[0; 2]);
            bytes.extend_from_slice(&device.to_le_bytes());
        }
        bytes.extend_from_slice(&block.to_le_bytes());
    }
    bytes
}
