//! Calls of single layers, with errors that name the layer.

use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_io::{Limits, ReadAt, u32_from, u64_from};
use forerun_vfs::{
    BlobId, Bound, DirCursor, DirEntry, Error, FileSystem, FileType, Metadata, NodeId, OwnContents,
    Result,
};

use crate::ids::{LAYERS_MAX, LayerNode, Named, blob};
use crate::links::Links;
use crate::whiteout;

/// One layer: a filesystem and the image with its data.
#[derive(Clone)]
pub struct Layer {
    pub name: Arc<str>,
    pub fs: Arc<dyn FileSystem>,
    /// The image: the blob that extents of the driver call [`BlobId::IMAGE`].
    pub image: Arc<dyn ReadAt>,
    /// A note for reports, shown beside the format.
    pub note: Option<&'static str>,
}

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layer")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The effect of a node on the layers below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Hides all entries with its name, and is not shown itself.
    Hides,
    /// Is merged with lower directories of its name.
    Merges,
    /// Replaces all entries with its name.
    Replaces,
}

pub struct Stack {
    layers: Vec<Layer>,
    /// For each layer, whether it may have extended attributes.
    has_xattrs: Vec<bool>,
    has_objects: bool,
    count: u32,
    limits: Limits,
    links: Links,
    own_contents: OwnContents,
}

impl Stack {
    /// Creates a stack.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without any layer, and for a layer whose names ignore case;
    /// [`Error::Limit`] for more than [`LAYERS_MAX`] layers.
    pub fn new(layers: Vec<Layer>, limits: Limits) -> Result<Self> {
        if layers.len() > LAYERS_MAX {
            let most = u64_from(LAYERS_MAX);
            return Err(Error::limit(Bound::Other, "number of layers", most));
        }
        let mut lens = layers.iter().map(|layer| layer.fs.volume().image_len);
        if lens.try_fold(0, u64::checked_add).is_none() {
            let what = "length of all layers, in bytes,";
            return Err(Error::limit(Bound::Other, what, u64::MAX));
        }
        if layers.is_empty() {
            return Err(Error::Unsupported("a stack without layers".to_string()));
        }
        let mut has_xattrs = Vec::new();
        for layer in &layers {
            let volume = layer.fs.volume();
            if volume.folds_case {
                let what = "a layer whose names ignore case".to_string();
                return Err(Error::Unsupported(what).in_image(&layer.name));
            }
            has_xattrs.push(volume.has_xattrs);
        }
        let mut drivers = layers.iter().map(|layer| &layer.fs);
        Ok(Self {
            count: u32_from(u64_from(layers.len())),
            has_objects: drivers.any(|fs| fs.capabilities().objects.is_some()),
            layers,
            has_xattrs,
            limits,
            links: Links::default(),
            own_contents: OwnContents::default(),
        })
    }

    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn layer(&self, layer: u16) -> Option<&Layer> {
        self.layers.get(usize::from(layer))
    }

    /// Calls the driver of a node's layer.
    ///
    /// # Errors
    /// The errors of the call, with the name of the layer; [`Error::StaleNode`] if there is no such
    /// layer.
    pub fn call<T>(
        &self,
        at: LayerNode,
        call: impl FnOnce(&dyn FileSystem, NodeId) -> Result<T>,
    ) -> Result<T> {
        let stale = || Error::StaleNode(Named::Single(at).id().unwrap_or(at.node));
        let layer = self.layer(at.layer).ok_or_else(stale)?;
        call(&*layer.fs, at.node).map_err(|error| match error {
            Error::StaleNode(_) => stale(),
            error => error.in_image(&layer.name),
        })
    }

    pub fn metadata(&self, at: LayerNode) -> Result<Metadata> {
        self.call(at, |fs, node| fs.metadata(node))
    }

    /// Looks up a name in a directory of one layer, including markers.
    pub fn lookup(&self, dir: LayerNode, name: &[u8]) -> Result<Option<LayerNode>> {
        let layer = dir.layer;
        let found = self.call(dir, |fs, node| fs.lookup(node, name))?;
        let at = found.map(|node| LayerNode { layer, node });
        Ok(at.and_then(|at| match self.links.get(at) {
            None => Some(at),
            Some(link) => Some(link?.0),
        }))
    }

    /// Visits the entries of a directory of one layer, including markers, each with its node. For a
    /// hard link to a lower layer, the node is that of the file in the lower layer.
    pub fn read_dir(
        &self,
        dir: LayerNode,
        from: DirCursor,
        visit: &mut dyn FnMut(LayerNode, DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut visit_real = |entry: DirEntry<'_>| {
            let at = LayerNode {
                layer: dir.layer,
                node: entry.node,
            };
            match self.links.get(at) {
                None => visit(at, entry),
                Some(Some((at, kind))) => visit(at, DirEntry { kind, ..entry }),
                Some(None) => ControlFlow::Continue(()),
            }
        };
        self.call(dir, |fs, node| fs.read_dir(node, from, &mut visit_real))
    }

    pub const fn links(&self) -> &Links {
        &self.links
    }

    pub const fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }

    /// Returns whether nodes of a layer may have extended attributes.
    pub fn may_have_xattrs(&self, layer: u16) -> bool {
        let has = self.has_xattrs.get(usize::from(layer));
        has.copied().unwrap_or(false)
    }

    /// Returns whether any layer keeps data in a store of objects.
    pub const fn has_objects(&self) -> bool {
        self.has_objects
    }

    /// Returns whether overlayfs may have moved a node of an upper layer.
    pub fn may_redirect(&self) -> bool {
        self.has_xattrs.iter().skip(1).any(|&has| has)
    }

    pub const fn own_contents(&self) -> &OwnContents {
        &self.own_contents
    }

    /// Visits the extended attributes of a node of one layer, including those of overlayfs.
    pub fn xattrs(&self, at: LayerNode, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        if self.may_have_xattrs(at.layer) {
            self.call(at, |fs, node| fs.xattrs(node, visit))?;
        }
        Ok(())
    }

    pub fn effect(&self, at: LayerNode) -> Result<Effect> {
        let metadata = self.metadata(at)?;
        Ok(match metadata.kind {
            FileType::Directory => Effect::Merges,
            _ if whiteout::is_device(&metadata) => Effect::Hides,
            _ => Effect::Replaces,
        })
    }

    /// Returns whether to show an entry. A damaged entry is shown, so that its reader gets the
    /// error.
    pub fn is_shown(&self, at: LayerNode, name: &[u8], kind: FileType) -> Result<bool> {
        if whiteout::is_marker(name) {
            return Ok(false);
        }
        if kind != FileType::CharDevice {
            return Ok(true);
        }
        match self.effect(at) {
            Ok(effect) => Ok(effect != Effect::Hides),
            Err(Error::Corrupt(_)) => Ok(true),
            Err(error) => Err(error),
        }
    }

    pub fn is_root(&self, at: LayerNode) -> bool {
        let layer = self.layer(at.layer);
        layer.is_some_and(|layer| layer.fs.root() == at.node)
    }

    /// Returns whether a layer has a directory only because paths name it.
    pub fn is_implied(&self, dir: LayerNode) -> bool {
        let layer = self.layer(dir.layer);
        layer.is_some_and(|layer| layer.fs.is_implied(dir.node))
    }

    pub fn merged_blob(&self, layer: u16, inner: BlobId) -> Result<BlobId> {
        blob(layer, self.count, inner)
    }

    /// Returns the layer of a blob, and the layer's own number for the blob.
    pub fn layer_of(&self, blob: BlobId) -> (u16, BlobId) {
        crate::ids::split_blob(blob, self.count)
    }

    pub fn split_blob(&self, blob: BlobId) -> Option<(&Layer, BlobId)> {
        let (layer, inner) = self.layer_of(blob);
        Some((self.layer(layer)?, inner))
    }
}
