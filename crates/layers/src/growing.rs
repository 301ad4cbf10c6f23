//! The merge of layers that are still being read.
//!
//! A name is answered as soon as the topmost layer that has it has got there, and all layers above are whole: what is
//! above could hide it, what is below changes nothing. A name that is nowhere, and a listing, take all layers. Once all
//! are whole, [`Layers`] answers. Directories have the same ids before and after: that of their topmost part.

use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, OnceLock};

use forerun_io::{Limits, ReadAt, Unpoisoned as _};
use forerun_vfs::{
    BlobId, DirCursor, DirEntry, EncodedBlock, Error, Extent, FileSum, FileSystem, Metadata,
    NodeId, Place, Problem, Region, Result, VolumeInfo, check_name,
};

use crate::dirs::Table;
use crate::driver::Layers;
use crate::ids::{LayerNode, Named};
use crate::lazy::{DEPTH_MAX, LazyDir, LazyDirs};
use crate::regions::Ranges;
use crate::stack::{Effect, Layer, Stack};
use crate::{volume, whiteout};

/// Several filesystems shown as one while some of them are read.
pub struct GrowingLayers {
    layers: Vec<Layer>,
    stack: Stack,
    dirs: LazyDirs,
    root: NodeId,
    ranges: Ranges,
    /// The properties that must not change while it grows.
    volume: VolumeInfo,
    settled: OnceLock<Result<Layers>>,
    settling: Mutex<()>,
    failed: OnceLock<Error>,
}

/// A node before all layers are whole.
enum GrowingNode<'l> {
    Single(LayerNode),
    Dir(LayerNode, Arc<LazyDir>),
    /// One that is not known yet: the merge of all layers knows it.
    Settled(&'l Layers),
}

impl GrowingLayers {
    /// Merges layers, the lowest first. Those that are not whole say so ([`FileSystem::is_settled`]).
    ///
    /// # Errors
    /// Those of [`Layers::new`].
    pub fn new(layers: Vec<Layer>, limits: &Limits) -> Result<Self> {
        let stack = Stack::new(layers.clone(), limits.clone())?;
        let roots = stack.layers().iter().zip(0..);
        let top = roots.last().map(|(layer, number)| LayerNode {
            layer: number,
            node: layer.fs.root(),
        });
        let top = top.ok_or_else(|| Error::Unsupported("a stack of no layers".to_string()))?;
        Ok(Self {
            dirs: LazyDirs::new(&stack, limits),
            root: Named::Merged(top).id()?,
            ranges: Ranges::new(&stack),
            volume: volume::describe(&stack),
            layers,
            stack,
            settled: OnceLock::new(),
            settling: Mutex::new(()),
            failed: OnceLock::new(),
        })
    }

    /// Fails everything from now on, for instance because a layer is not what it should be.
    pub fn fail(&self, error: Error) {
        self.failed.get_or_init(|| error);
    }

    /// Returns the merge of all layers, if it was made.
    fn merged(&self) -> Result<Option<&Layers>> {
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        match self.settled.get() {
            Some(Ok(layers)) => Ok(Some(layers)),
            Some(Err(error)) => Err(error.clone()),
            None => Ok(None),
        }
    }

    /// Returns the merge of all layers. Waits until they are whole.
    fn all(&self) -> Result<&Layers> {
        loop {
            if let Some(layers) = self.merged()? {
                return Ok(layers);
            }
            for layer in &self.layers {
                let settled = layer.fs.settle();
                settled.map_err(|error| error.in_image(&layer.name))?;
            }
            let _one_at_a_time = self.settling.lock().unpoisoned();
            self.settled.get_or_init(|| {
                let limits = self.stack.limits();
                Layers::over(self.layers.clone(), Table::of_all(limits), limits)
            });
        }
    }

    fn node(&self, id: NodeId) -> Result<GrowingNode<'_>> {
        if let Some(layers) = self.merged()? {
            return Ok(GrowingNode::Settled(layers));
        }
        match Named::of(id) {
            Named::Single(at) => Ok(GrowingNode::Single(at)),
            Named::Merged(top) => match self.dirs.get(top) {
                Some(dir) => Ok(GrowingNode::Dir(top, dir)),
                // One that a server before this one has shown.
                None => self.all().map(GrowingNode::Settled),
            },
        }
    }

    /// Returns the node of a name in a directory of which not all parts are known. Returns nothing inside if only the
    /// merge of all layers can tell.
    fn find(&self, dir: &Arc<LazyDir>, name: &[u8]) -> Result<Option<Option<NodeId>>> {
        let whiteout = whiteout::hiding(name, self.stack.limits().name_len);
        let mut index = 0;
        while let Some(part) = self.dirs.part(&self.stack, dir, index)? {
            if let Some(at) = self.stack.lookup(part, name)? {
                if self.stack.call(at, |fs, node| fs.is_link_below(node))? {
                    return Ok(None);
                }
                return match self.stack.effect(at)? {
                    Effect::Hides => Ok(Some(None)),
                    Effect::Replaces => Named::Single(at).id().map(|id| Some(Some(id))),
                    Effect::Merges if dir.depth >= DEPTH_MAX => Ok(None),
                    Effect::Merges => {
                        self.dirs.add(at, (dir, name), index)?;
                        Named::Merged(at).id().map(|id| Some(Some(id)))
                    }
                };
            }
            if let Some(whiteout) = &whiteout
                && self.stack.lookup(part, whiteout)?.is_some()
            {
                return Ok(Some(None));
            }
            index += 1;
        }
        Ok(Some(None))
    }

    /// Returns the part of a directory whose metadata is that of the merged one. That of the root may change until all
    /// layers are whole.
    fn described(&self, top: LayerNode, dir: &LazyDir) -> Result<LayerNode> {
        let is_root = Named::Merged(top).id()? == self.root;
        let mut index = 0;
        loop {
            let part = match is_root {
                false => self.dirs.part(&self.stack, dir, index)?,
                true => self.dirs.root(index),
            };
            let Some(part) = part else {
                return Ok(top);
            };
            // The parts of the root are not waited for: no path would be answered before all layers are whole.
            if !is_root {
                self.stack.metadata(part)?;
            }
            if !self.stack.is_implied(part) {
                return Ok(part);
            }
            index += 1;
        }
    }
}

impl FileSystem for GrowingLayers {
    fn volume(&self) -> VolumeInfo {
        let Ok(Some(layers)) = self.merged() else {
            return self.volume.clone();
        };
        // A server that takes a mount over compares these.
        let mut volume = layers.volume();
        volume.block_size = self.volume.block_size;
        volume.has_xattrs = self.volume.has_xattrs;
        volume.has_acls = self.volume.has_acls;
        volume
    }

    fn root(&self) -> NodeId {
        self.root
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        match self.node(node)? {
            GrowingNode::Single(at) => self.stack.metadata(at),
            GrowingNode::Dir(top, dir) => {
                let mut metadata = self.stack.metadata(self.described(top, &dir)?)?;
                metadata.nlink = 1;
                Ok(metadata)
            }
            GrowingNode::Settled(layers) => layers.metadata(node),
        }
    }

    fn is_implied(&self, node: NodeId) -> bool {
        match self.merged() {
            Ok(Some(layers)) => layers.is_implied(node),
            Ok(None) | Err(_) => false,
        }
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        match self.node(dir)? {
            GrowingNode::Single(_) => Err(Error::NotADirectory),
            GrowingNode::Dir(_, lazy) => {
                let is_name = check_name(name, self.stack.limits().name_len).is_ok();
                if !is_name || whiteout::is_marker(name) {
                    return Ok(None);
                }
                match self.find(&lazy, name)? {
                    Some(found) => Ok(found),
                    None => self.all()?.lookup(dir, name),
                }
            }
            GrowingNode::Settled(layers) => layers.lookup(dir, name),
        }
    }

    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.all()?.read_dir(dir, from, visit)
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        match self.node(node)? {
            GrowingNode::Single(at) => self.stack.call(at, |fs, node| fs.read_link(node)),
            GrowingNode::Dir(..) => Err(Error::NotASymlink),
            GrowingNode::Settled(layers) => layers.read_link(node),
        }
    }

    fn xattrs(&self, node: NodeId, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        match self.node(node)? {
            GrowingNode::Single(at) => self.stack.shown_xattrs(at, visit),
            GrowingNode::Dir(top, dir) => {
                let described = self.described(top, &dir)?;
                self.stack.shown_xattrs(described, visit)
            }
            GrowingNode::Settled(layers) => layers.xattrs(node, visit),
        }
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        match self.node(node)? {
            // Where its contents are takes all layers.
            GrowingNode::Single(at) if self.stack.is_copy(at)? => {
                self.all()?.map(node, range, visit)
            }
            GrowingNode::Single(at) => self.stack.map(at, range, visit),
            GrowingNode::Dir(..) => Err(Error::IsADirectory),
            GrowingNode::Settled(layers) => layers.map(node, range, visit),
        }
    }

    fn blob(&self, blob: BlobId) -> Result<Arc<dyn ReadAt>> {
        self.stack.open_blob(blob)
    }

    fn history(&self, block: &EncodedBlock) -> Result<Vec<u8>> {
        self.stack.history(block)
    }

    fn verify(&self, block: &EncodedBlock, decoded: &[u8]) -> Result<()> {
        self.stack.verify(block, decoded)
    }

    fn proves(&self, place: &Place) -> bool {
        self.stack.proves(place)
    }

    fn unproven_metadata(&self) -> Option<u64> {
        self.stack.unproven_metadata()
    }

    fn verify_stored(&self, block: &EncodedBlock, stored: &[u8]) -> Result<()> {
        self.stack.verify_stored(block, stored)
    }

    fn file_sum(&self, node: NodeId) -> Result<Option<Box<dyn FileSum>>> {
        match Named::of(node) {
            Named::Single(at) => self.stack.call(at, |fs, node| fs.file_sum(node)),
            Named::Merged(_) => Ok(None),
        }
    }

    fn is_current(&self, blob: BlobId) -> bool {
        self.stack.is_current(blob)
    }

    fn image_of(&self, blob: BlobId) -> Option<Arc<str>> {
        self.stack.image_of(blob)
    }

    fn image_range(&self, blob: BlobId) -> Option<Range<u64>> {
        self.ranges.of_blob(&self.stack, blob)
    }

    fn backing(&self, node: NodeId) -> Result<Option<File>> {
        self.all()?.backing(node)
    }

    fn is_settled(&self) -> bool {
        self.settled.get().is_some()
    }

    fn settle(&self) -> Result<()> {
        self.all().map(drop)
    }

    fn regions(&self, visit: &mut dyn FnMut(Region) -> ControlFlow<()>) -> Result<()> {
        self.all()?.regions(visit)
    }

    fn regions_of(
        &self,
        node: NodeId,
        visit: &mut dyn FnMut(Region) -> ControlFlow<()>,
    ) -> Result<()> {
        self.all()?.regions_of(node, visit)
    }

    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        self.all()?.describe(node)
    }

    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        self.all()?.check(node, report)
    }
}
