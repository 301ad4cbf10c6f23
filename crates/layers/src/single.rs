//! Nodes of one layer: their attributes and extents, and the blobs of these.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_io::ReadAt;
use forerun_vfs::{
    BlobId, Blobs, EncodedBlock, Error, Extent, FileSum, History, NodeId, OverlayAttribute, Place,
    Result, Verifier,
};

use crate::ids::{LayerNode, Named};
use crate::stack::{Layer, Stack};

impl Stack {
    pub fn is_dir(&self, at: LayerNode) -> Result<bool> {
        Ok(self.metadata(at)?.is_dir())
    }

    /// Visits the attributes of a node, without those of overlayfs itself.
    pub fn shown_xattrs(&self, at: LayerNode, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.xattrs(at, &mut |name, value| match OverlayAttribute::of(name) {
            None => visit(name, value),
            Some(OverlayAttribute::Nested(prefix, rest)) => visit(&[prefix, rest].concat(), value),
            Some(OverlayAttribute::Own(_)) => {}
        })
    }

    /// Visits the extents of a file, with the blobs of the merge.
    pub fn map(
        &self,
        at: LayerNode,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut failed = Ok(());
        let mut translate = |extent| match self.translated(at.layer, extent) {
            Ok(extent) => visit(extent),
            Err(error) => {
                failed = Err(error);
                ControlFlow::Break(())
            }
        };
        self.call(at, |fs, node| fs.map(node, range, &mut translate))?;
        failed
    }

    /// Translates an extent to the blobs of the merge.
    fn translated(&self, layer: u16, extent: Extent) -> Result<Extent> {
        let place = match extent.place {
            Place::Stored { blob, offset } => Place::Stored {
                blob: self.merged_blob(layer, blob)?,
                offset,
            },
            Place::Encoded { mut block, skip } => {
                block.blob = self.merged_blob(layer, block.blob)?;
                Place::Encoded { block, skip }
            }
            place @ (Place::Zero | Place::Inline(_)) => place,
        };
        Ok(Extent { place, ..extent })
    }

    fn block_of_layer(&self, block: &EncodedBlock) -> Result<(&Layer, EncodedBlock)> {
        let (layer, blob) = self.known_blob(block.blob)?;
        Ok((layer, EncodedBlock { blob, ..*block }))
    }

    fn known_blob(&self, blob: BlobId) -> Result<(&Layer, BlobId)> {
        let unknown = || Error::Unsupported(format!("blob {} of no layer", blob.0));
        self.split_blob(blob).ok_or_else(unknown)
    }

    /// Returns the name of the layer that a blob belongs to.
    pub fn image_of(&self, blob: BlobId) -> Option<Arc<str>> {
        let (layer, _) = self.split_blob(blob)?;
        Some(Arc::clone(&layer.name))
    }

    /// Returns whether a blob that was opened before may still be read.
    pub fn is_current(&self, blob: BlobId) -> bool {
        match self.split_blob(blob) {
            Some((_, BlobId::IMAGE)) | None => true,
            Some((layer, inner)) => {
                let objects = layer.fs.capabilities().objects;
                objects.is_none_or(|objects| objects.is_current(inner))
            }
        }
    }
}

impl Blobs for Stack {
    fn blob(&self, blob: BlobId) -> Result<Arc<dyn ReadAt>> {
        let (layer, inner) = self.known_blob(blob)?;
        match inner {
            BlobId::IMAGE => Ok(Arc::clone(&layer.image)),
            inner => {
                let opened = layer.fs.blob(inner);
                opened.map_err(|error| error.in_image(&layer.name))
            }
        }
    }

    fn devices(&self) -> u32 {
        let blobs = self
            .layers()
            .iter()
            .filter_map(|layer| layer.fs.capabilities().blobs);
        blobs.map(Blobs::devices).fold(0, u32::saturating_add)
    }
}

impl History for Stack {
    fn history(&self, block: &EncodedBlock) -> Result<Vec<u8>> {
        let (layer, of_layer) = self.block_of_layer(block)?;
        let Some(of_driver) = layer.fs.capabilities().history else {
            return Ok(Vec::new());
        };
        let history = of_driver.history(&of_layer);
        history.map_err(|error| error.in_image(&layer.name))
    }
}

impl Verifier for Stack {
    fn verify(&self, block: &EncodedBlock, decoded: &[u8]) -> Result<()> {
        let (layer, of_layer) = self.block_of_layer(block)?;
        let Some(verifier) = layer.fs.capabilities().verifier else {
            return Ok(());
        };
        let verified = verifier.verify(&of_layer, decoded);
        verified.map_err(|error| error.in_image(&layer.name))
    }

    fn verify_stored(&self, block: &EncodedBlock, stored: &[u8]) -> Result<()> {
        let (layer, of_layer) = self.block_of_layer(block)?;
        let Some(verifier) = layer.fs.capabilities().verifier else {
            return Ok(());
        };
        let verified = verifier.verify_stored(&of_layer, stored);
        verified.map_err(|error| error.in_image(&layer.name))
    }

    fn proves(&self, place: &Place) -> bool {
        let mut of_layer = place.clone();
        let blob = match &mut of_layer {
            Place::Encoded { block, .. } => &mut block.blob,
            Place::Stored { blob, .. } => blob,
            Place::Zero | Place::Inline(_) => return false,
        };
        let Some((layer, inner)) = self.split_blob(*blob) else {
            return false;
        };
        *blob = inner;
        let verifier = layer.fs.capabilities().verifier;
        verifier.is_some_and(|verifier| verifier.proves(&of_layer))
    }

    fn file_sum(&self, node: NodeId) -> Result<Option<Box<dyn FileSum>>> {
        match Named::of(node) {
            Named::Single(at) => self.call(at, |fs, node| fs.file_sum(node)),
            Named::Merged(_) => Ok(None),
        }
    }

    fn unproven_metadata(&self) -> Option<u64> {
        let layers = self.layers().iter();
        let verifiers = layers.filter_map(|layer| layer.fs.capabilities().verifier);
        verifiers.map(Verifier::unproven_metadata).sum()
    }
}
