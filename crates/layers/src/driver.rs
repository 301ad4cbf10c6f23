//! The merge as a [`FileSystem`].

use std::collections::HashSet;
use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forerun_io::Limits;
use forerun_vfs::{
    BlobId, Capabilities, DirCursor, DirEntry, Error, Extent, FileSystem, FileType, Held, Inferred,
    Layout, Merged, Metadata, MetadataLayout, NodeId, Objects, Problem, Region, Result, VolumeInfo,
    check_name,
};

use crate::copies::Copies;
use crate::covered::Listings;
use crate::dirs::{MergedDir, Table};
use crate::ids::{LayerNode, Named};
use crate::listing::{self, Lister};
use crate::regions::Ranges;
use crate::stack::{Effect, Layer, Stack};
use crate::whiteout;
use crate::{check, find, resolve, volume};

/// Bytes that a directory takes in the lists of a survey.
const DIR_LEN: usize = 4 * size_of::<NodeId>();

pub struct Layers {
    stack: Stack,
    table: Table,
    listings: Listings,
    copies: Copies,
    root: NodeId,
    volume: VolumeInfo,
    ranges: Ranges,
}

enum Node {
    Single(LayerNode),
    Merged(Arc<MergedDir>),
}

impl Layers {
    /// Merges layers, the lowest first.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without any layer, for a layer whose names ignore case, and for a
    /// root whose id does not fit; [`Error::Limit`] for more than [`LAYERS_MAX`](crate::LAYERS_MAX)
    /// layers.
    pub fn new(layers: Vec<Layer>, limits: &Limits) -> Result<Self> {
        let mut stack = Stack::new(layers, limits.clone())?;
        resolve::links(&mut stack, limits)?;
        let table = Table::new(limits);
        let roots = stack.layers().iter().zip(0..);
        let mut roots: Vec<LayerNode> = roots
            .map(|(layer, number)| LayerNode {
                layer: number,
                node: layer.fs.root(),
            })
            .collect();
        roots.reverse();
        let root = listing::id_of(&table, roots)?;
        let root = root.ok_or_else(|| Error::Unsupported("a stack without layers".to_string()))?;
        Ok(Self {
            volume: volume::describe(&stack),
            ranges: Ranges::new(&stack),
            listings: Listings::new(limits),
            copies: Copies::new(limits),
            stack,
            table,
            root,
        })
    }

    const fn lister(&self) -> Lister<'_> {
        Lister {
            stack: &self.stack,
            table: &self.table,
            listings: &self.listings,
        }
    }

    /// Returns the node with this id. Searches for a merged directory that is not known yet, for
    /// example after a restart of a mount's server.
    fn node(&self, id: NodeId) -> Result<Node> {
        let top = match Named::of(id) {
            Named::Single(at) => return Ok(Node::Single(at)),
            Named::Merged(top) => top,
        };
        if self.stack.layer(top.layer).is_none() {
            return Err(Error::StaleNode(id));
        }
        let list = |dir: &MergedDir| {
            let all = &mut |_: DirEntry<'_>| ControlFlow::Continue(());
            self.lister().read_merged(dir, DirCursor::START, all)
        };
        let mut found = self.table.search(top, list)?;
        if found.is_none() && self.stack.may_redirect() {
            self.survey()?;
            found = self.table.get(top);
        }
        found.map(Node::Merged).ok_or(Error::StaleNode(id))
    }

    /// Lists, once, all directories that upper layers contribute to. Adds merged ones to the table,
    /// and records files whose contents are in a lower layer.
    fn survey(&self) -> Result<()> {
        let complete = &self.copies.is_complete;
        if complete.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut held = Held::new(self.stack.limits());
        let (mut left, mut seen) = (vec![self.root], HashSet::new());
        while let Some(dir) = left.pop() {
            let dirs = match Named::of(dir) {
                Named::Single(at) => vec![at],
                Named::Merged(top) => {
                    let merged = self.table.get(top);
                    match merged.as_ref().map(|merged| merged.visible(&self.stack)) {
                        Some(Ok(dirs)) => dirs.to_vec(),
                        Some(Err(error @ Error::Io { .. })) => return Err(error),
                        Some(Err(_)) | None => continue,
                    }
                }
            };
            if dirs.iter().all(|at| at.layer == 0) {
                continue;
            }
            let mut noted = Ok(());
            let listed = self.read_dir(dir, DirCursor::START, &mut |entry| {
                noted = match (entry.kind, Named::of(entry.node)) {
                    (FileType::Directory, _) if seen.insert(entry.node) => {
                        left.push(entry.node);
                        held.add(DIR_LEN)
                    }
                    (FileType::Regular, Named::Single(at)) => {
                        self.copies.note(&self.stack, &dirs, (entry.name, at))
                    }
                    _ => Ok(()),
                };
                match noted {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            });
            noted?;
            // The reader of a damaged directory reports the error.
            if let Err(error @ Error::Io { .. }) = listed {
                return Err(error);
            }
        }
        complete.store(true, Ordering::Release);
        Ok(())
    }

    fn contents(&self, at: LayerNode) -> Result<LayerNode> {
        self.copies.contents(&self.stack, at, || self.survey())
    }

    /// Returns the node that has the metadata and attributes of a node.
    fn described(&self, node: &Node, id: NodeId) -> Result<LayerNode> {
        match node {
            Node::Single(at) => Ok(*at),
            Node::Merged(dir) => dir.described(&self.stack).ok_or(Error::StaleNode(id)),
        }
    }
}

impl FileSystem for Layers {
    fn volume(&self) -> &VolumeInfo {
        &self.volume
    }

    fn root(&self) -> NodeId {
        self.root
    }

    /// Returns the metadata of the uppermost layer that has the node. The link count of a merged
    /// directory is 1, as with overlayfs, because counting its subdirectories would take a listing
    /// of all layers.
    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        let found = self.node(node)?;
        let mut metadata = self.stack.metadata(self.described(&found, node)?)?;
        if let Node::Merged(_) = found {
            metadata.nlink = 1;
        }
        Ok(metadata)
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        let dir = self.node(dir)?;
        let is_name = check_name(name, self.stack.limits().name_len).is_ok();
        match dir {
            Node::Single(dir) => {
                self.stack.expect_no_redirect(dir)?;
                let found = self.stack.lookup(dir, name)?;
                let Some(at) = found.filter(|_| is_name && !whiteout::is_marker(name)) else {
                    return Ok(None);
                };
                match self.stack.effect(at) {
                    Ok(Effect::Hides) => Ok(None),
                    Ok(Effect::Merges) => listing::dir_id(&self.stack, &self.table, at).map(Some),
                    Ok(Effect::Replaces) => {
                        self.copies.note(&self.stack, &[dir], (name, at))?;
                        Named::Single(at).id().map(Some)
                    }
                    // The reader of a damaged node reports the error.
                    Err(Error::Corrupt(_)) => Named::Single(at).id().map(Some),
                    Err(error) => Err(error),
                }
            }
            Node::Merged(dir) if is_name && !whiteout::is_marker(name) => {
                let dirs = dir.visible(&self.stack)?;
                let found = find::find(&self.stack, dirs, name, None)?;
                if let &[at] = found.as_slice() {
                    self.copies.note(&self.stack, dirs, (name, at))?;
                }
                listing::id_of(&self.table, found)
            }
            Node::Merged(_) => Ok(None),
        }
    }

    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        match self.node(dir)? {
            Node::Single(dir) => listing::read_single((&self.stack, &self.table), dir, from, visit),
            Node::Merged(dir) => self.lister().read_merged(&dir, from, visit),
        }
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        match self.node(node)? {
            Node::Single(at) => self.stack.call(at, |fs, node| fs.read_link(node)),
            Node::Merged(_) => Err(Error::NotASymlink),
        }
    }

    /// Visits the attributes of the uppermost layer that has the node, without those of overlayfs
    /// itself.
    fn xattrs(&self, node: NodeId, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let at = self.described(&self.node(node)?, node)?;
        self.stack.shown_xattrs(at, visit)
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        match self.node(node)? {
            Node::Single(at) => self.stack.map(self.contents(at)?, range, visit),
            Node::Merged(_) => Err(Error::IsADirectory),
        }
    }

    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        let Some(node) = node else {
            return Ok(self.volume.details.clone());
        };
        let named = |at: LayerNode| {
            let layer = self.stack.layer(at.layer);
            layer.map_or(String::new(), |layer| layer.name.to_string())
        };
        let found = self.node(node)?;
        let (at, layers) = match found {
            Node::Single(at) => (at, named(at)),
            Node::Merged(ref dir) => {
                let names: Vec<String> = dir.all().iter().map(|&at| named(at)).collect();
                (self.described(&found, node)?, names.join(", over "))
            }
        };
        let mut fields = vec![("layer", layers)];
        fields.extend(self.stack.call(at, |fs, node| fs.describe(Some(node)))?);
        Ok(fields)
    }

    /// Runs the checks of the layers, and reports whiteouts that hide nothing.
    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        let Some(node) = node else {
            return check::whole(&self.stack, report);
        };
        match self.node(node)? {
            Node::Single(at) => check::node(&self.stack, at, report),
            Node::Merged(dir) => {
                for &at in dir.all() {
                    check::node(&self.stack, at, report)?;
                }
                Ok(())
            }
        }
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            layout: Some(self),
            verifier: Some(&self.stack),
            blobs: Some(&self.stack),
            objects: self.stack.has_objects().then_some(self),
            history: Some(&self.stack),
            inferred: Some(self),
            layered: None,
            merged: Some(self),
            fat_attributes: None,
            driver: None,
        }
    }
}

impl Layout for Layers {
    /// Returns the layout of the lowest layer, whose image is that of the merge. It is usually the
    /// largest.
    fn metadata_layout(&self) -> MetadataLayout {
        let lowest = self.stack.layer(0);
        lowest.map_or(MetadataLayout::Unknown, |layer| layer.fs.metadata_layout())
    }

    /// Visits the regions of all layers, including those that upper layers hide.
    fn regions(&self, visit: &mut dyn FnMut(Region) -> ControlFlow<()>) -> Result<()> {
        self.ranges.regions(&self.stack, visit)
    }

    /// Visits the regions of a node, or of all directories that it is merged from.
    fn regions_of(
        &self,
        node: NodeId,
        visit: &mut dyn FnMut(Region) -> ControlFlow<()>,
    ) -> Result<()> {
        match self.node(node)? {
            Node::Single(at) => self.ranges.regions_of(&self.stack, &[at], visit),
            Node::Merged(dir) => self.ranges.regions_of(&self.stack, dir.all(), visit),
        }
    }

    /// Returns the offset of an inode of the lowest layer, whose image is that of the merge.
    fn inode_offset(&self, node: NodeId) -> Option<u64> {
        match Named::of(node) {
            Named::Single(LayerNode { layer: 0, node }) => {
                let layout = self.stack.layer(0)?.fs.capabilities().layout?;
                layout.inode_offset(node)
            }
            Named::Single(_) | Named::Merged(_) => None,
        }
    }

    fn names_max(&self) -> Option<u64> {
        let layers = self.stack.layers().iter();
        let names = layers.map(|layer| layer.fs.capabilities().layout?.names_max());
        names.reduce(|all, of_layer| all?.checked_add(of_layer?))?
    }

    fn shares_blocks(&self) -> bool {
        let mut layers = self.stack.layers().iter();
        layers.any(|layer| {
            let layout = layer.fs.capabilities().layout;
            layout.is_some_and(Layout::shares_blocks)
        })
    }
}

impl Objects for Layers {
    fn is_current(&self, blob: BlobId) -> bool {
        self.stack.is_current(blob)
    }

    fn backing(&self, node: NodeId) -> Result<Option<File>> {
        match self.node(node)? {
            Node::Single(at) => {
                let at = self.contents(at)?;
                self.stack.call(at, |fs, node| fs.backing(node))
            }
            Node::Merged(_) => Ok(None),
        }
    }
}

impl Inferred for Layers {
    fn is_implied(&self, node: NodeId) -> bool {
        let found = self.node(node);
        let described = found.and_then(|found| self.described(&found, node));
        described.is_ok_and(|at| self.stack.is_implied(at))
    }

    fn is_guess(&self, node: NodeId) -> bool {
        match Named::of(node) {
            Named::Single(at) => {
                let layer = self.stack.layer(at.layer);
                layer.is_some_and(|layer| layer.fs.is_guess(at.node))
            }
            Named::Merged(_) => false,
        }
    }
}

impl Merged for Layers {
    fn image_of(&self, blob: BlobId) -> Option<Arc<str>> {
        self.stack.image_of(blob)
    }

    fn image_range(&self, blob: BlobId) -> Option<Range<u64>> {
        self.ranges.of_blob(&self.stack, blob)
    }
}
