//! Inodes and directories: places all of them first, then writes them in order.

use std::collections::HashMap;

use forerun_build::{
    BuildError, Content, NewNode, NodeIndex, NodeKind, Tree, WalkedDir, WalkedNode,
};
use forerun_io::{u32_from, u64_from, usize_from};
use forerun_vfs::Timestamp;

use super::data::{Data, HOLE};
use super::dir::Listing;
use super::index::Format;
use super::inode::{Fields, core_len, encode};
use super::options::ErofsOptions;
use super::place::{Item, Placer, SLOT};
use super::plan::Plan;
use super::shape::{Shapes, size};
use super::stored::{self, Stored, body_behind, body_stored, chunks_stored, predict};
use super::xattr::{self, Xattrs};
use crate::inode::DataLayout;

#[derive(Clone, Copy)]
pub struct Parts<'a> {
    pub tree: &'a Tree,
    pub plan: &'a Plan<'a>,
    pub xattrs: &'a Xattrs,
    pub shapes: &'a Shapes,
    pub options: &'a ErofsOptions,
    pub format: Format,
    /// The image's time, which compact inodes do not store.
    pub epoch: Timestamp,
}

type Write<'w> = dyn FnMut(u64, &[u8]) -> Result<(), BuildError> + 'w;

pub struct Nodes<'a> {
    parts: Parts<'a>,
    /// Offsets of inodes from the start of the block that holds the first one.
    places: HashMap<NodeIndex, u64>,
    /// Directory blocks and symlink targets that do not follow their inodes.
    blocks: HashMap<NodeIndex, u64>,
    /// All metadata in offset order.
    pieces: Vec<(u64, PlacedPiece)>,
    dirs: HashMap<NodeIndex, usize>,
    /// Position of the packed inode, in the same unit as `places`.
    packed: Option<u64>,
    base: u64,
    pub end: u64,
}

#[derive(Clone, Copy)]
enum PlacedPiece {
    Inode(NodeIndex),
    /// Whole blocks of a directory or symlink target.
    Blocks(NodeIndex),
    Packed,
}

impl<'a> Nodes<'a> {
    /// Places everything from `start` on. `data` may be `None` only if all inode lengths follow
    /// from the tree and the options.
    pub fn place(parts: Parts<'a>, data: Option<&Data>, start: u64) -> Self {
        let block = u64::from(parts.options.block_size);
        let plan = parts.plan;
        let mut nodes = Self {
            parts,
            places: HashMap::with_capacity(plan.inodes.len()),
            blocks: HashMap::new(),
            pieces: Vec::with_capacity(plan.inodes.len()),
            dirs: HashMap::with_capacity(plan.walked.dirs.len()),
            packed: None,
            base: start - start % block,
            end: 0,
        };
        for (at, dir) in plan.walked.dirs.iter().enumerate() {
            nodes.dirs.insert(dir.node, at);
        }
        let mut placer = Placer::new(start, block);
        nodes.place_inode(Tree::ROOT, data, &mut placer);
        for dir in &plan.walked.dirs {
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
        nodes.place_packed(data, &mut placer);
        nodes.pieces.sort_unstable_by_key(|(at, _)| *at);
        nodes.end = placer.end();
        nodes
    }

    pub fn nid(&self, node: NodeIndex) -> u64 {
        self.places.get(&node).copied().unwrap_or(0) / SLOT
    }

    pub fn packed_nid(&self) -> Option<u64> {
        self.packed.map(|at| at / SLOT)
    }

    /// Writes all inodes, directories and symlink targets in order. `base` is the first block of
    /// data.
    pub fn write(&self, data: &Data, base: u32, out: &mut Write<'_>) -> Result<(), BuildError> {
        for &(at, piece) in &self.pieces {
            let bytes = match piece {
                PlacedPiece::Inode(node) => self.inode(node, data, base)?,
                PlacedPiece::Packed => self.packed_inode(data, base)?,
                PlacedPiece::Blocks(node) => {
                    let mut bytes = self.contents(node);
                    bytes.truncate(usize_from(self.in_blocks(node)));
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
        self.pieces.push((at, PlacedPiece::Inode(node)));
    }

    fn place_blocks(&mut self, node: NodeIndex, placer: &mut Placer) {
        let len = self.in_blocks(node);
        if len > 0 {
            let at = placer.blocks(len);
            self.blocks.insert(node, at);
            self.pieces.push((at, PlacedPiece::Blocks(node)));
        }
    }

    /// Returns the length of a directory or symlink target, and the length of its last block.
    /// `None` for other nodes.
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

    /// Returns how many bytes of a directory or symlink target follow the inode.
    fn contents_inline(&self, node: NodeIndex) -> u64 {
        let block = u64::from(self.parts.options.block_size);
        let head = self.parts.shapes.head(node);
        match self.contents_len(node) {
            // A symlink target is inline as a whole or not at all.
            Some((len, last)) if head + last <= block && self.is_whole(node, len, last) => last,
            _ => 0,
        }
    }

    fn is_whole(&self, node: NodeIndex, len: u64, last: u64) -> bool {
        len == last || matches!(self.parts.tree.node(node).kind, NodeKind::Directory(_))
    }

    /// Returns the number of bytes of a directory or symlink target that are stored in blocks.
    fn in_blocks(&self, node: NodeIndex) -> u64 {
        let len = self.contents_len(node).map_or(0, |(len, _)| len);
        len - self.contents_inline(node)
    }

    fn dir(&self, node: NodeIndex) -> Option<(&'a WalkedDir<'a>, &'a Listing)> {
        let at = *self.dirs.get(&node)?;
        let Parts { plan, shapes, .. } = self.parts;
        Some((plan.walked.dirs.get(at)?, shapes.listings.get(at)?))
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

    /// Returns the lengths of the index and of the inline data after an inode.
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
            Some((None, Some(body))) => body_behind(format, body, head, len),
            Some((None, None)) => (0, 0),
            Some((Some(_), _)) | None => predict(options, self.chunk_size(node), head, len),
        }
    }

    fn chunk_size(&self, node: NodeIndex) -> Option<u32> {
        let chunked = self.parts.plan.chunked.get(&node).copied();
        chunked.or(self.parts.options.chunk_size)
    }

    fn inode(&self, index: NodeIndex, data: &Data, base: u32) -> Result<Vec<u8>, BuildError> {
        let Parts {
            tree,
            plan,
            xattrs,
            shapes,
            options,
            ..
        } = self.parts;
        let node = tree.node(index);
        let stored = match &node.kind {
            NodeKind::File { len, .. } => self.file(index, *len, data, base)?,
            NodeKind::Directory(_) | NodeKind::Symlink(_) => self.listed(index)?,
            NodeKind::BlockDevice(number) | NodeKind::CharDevice(number) => {
                // The plan rejected device numbers that do not fit.
                Stored::plain(number.pack().unwrap_or(0))
            }
            NodeKind::Fifo | NodeKind::Socket => Stored::plain(0),
        };
        let own = xattrs.of(index);
        let fields = Fields {
            mode: if options.xattrs {
                node.mode
            } else {
                node.mode_without_acl()
            },
            planned: plan.walked.nodes.get(index),
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
            Some(at) => stored::block(at / u64::from(self.parts.options.block_size))?,
            None => 0,
        };
        if inline == 0 {
            return Ok(Stored::plain(block));
        }
        let start = usize_from(self.in_blocks(node));
        Ok(Stored {
            layout: DataLayout::Inline,
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
            plan,
            shapes,
            options,
            format,
            ..
        } = self.parts;
        let head = shapes.head(node);
        let chunk = self.chunk_size(node).unwrap_or(options.block_size);
        if let Some(starts) = plan.referenced.get(&node) {
            return Ok(chunks_stored(options, chunk, starts.iter().copied(), head));
        }
        Ok(match data.of(node) {
            (Some(chunks), _) => {
                let device = u16::from(options.blob.is_some());
                let starts = chunks.iter().map(|&chunk| match data.chunk(chunk, base) {
                    HOLE => (0, HOLE),
                    block => (device, block),
                });
                chunks_stored(options, chunk, starts, head)
            }
            (None, Some(body)) => body_stored(format, body, (head, len), data, base)?,
            (None, None) => Stored::plain(0),
        })
    }

    fn place_packed(&mut self, data: Option<&Data>, placer: &mut Placer) {
        let Some((packed, body)) = data.and_then(Data::packed) else {
            return;
        };
        let core = core_len(stored::is_long(packed.len));
        let (indexes, inline) = body_behind(self.parts.format, body, core, packed.len);
        let head = core + indexes;
        let at = placer.item(Item { core, head, inline });
        self.packed = Some(at - self.base);
        self.pieces.push((at, PlacedPiece::Packed));
    }

    /// Encodes the packed inode, which no directory lists.
    fn packed_inode(&self, data: &Data, base: u32) -> Result<Vec<u8>, BuildError> {
        let Some((packed, body)) = data.packed() else {
            return Ok(Vec::new());
        };
        let extended = stored::is_long(packed.len);
        let head = core_len(extended);
        let format = self.parts.format;
        let stored = body_stored(format, body, (head, packed.len), data, base)?;
        let content = Content::Bytes([].into());
        let len = packed.len;
        let mut node = NewNode::new(NodeKind::File { len, content }, 0o644);
        node.mtime = self.parts.epoch;
        let number = u32_from(u64_from(self.parts.plan.inodes.len() + 1));
        let fields = Fields {
            mode: node.mode,
            planned: WalkedNode { number, nlink: 1 },
            size: len,
            layout: stored.layout,
            union: stored.union,
            xattr_count: 0,
        };
        let mut bytes = encode(&node, &fields, extended);
        bytes.extend_from_slice(&stored.indexes);
        bytes.extend_from_slice(&stored.inline);
        Ok(bytes)
    }
}
