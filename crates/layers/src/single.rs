//! Nodes of one layer: attributes, the places of data, and the blobs that these are in.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_io::ReadAt;
use forerun_vfs::{BlobId, EncodedBlock, Error, Extent, OverlayAttribute, Place, Result};

use crate::ids::LayerNode;
use crate::stack::{Layer, Stack};

impl Stack {
    /// Returns whether a node is a directory.
    pub fn is_dir(&self, at: LayerNode) -> Result<bool> {
        Ok(self.metadata(at)?.is_dir())
    }

    /// Visits the attributes of a node, those of overlayfs itself left out.
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

    /// Returns the extent with the blobs of the merge.
    fn translated(&self, layer: u16, extent: Extent) -> Result<Extent> {
        let place = match extent.place {
            Place::Stored { blob, offset } => Place::Stored {
                blob: self.blob(layer, blob)?,
                offset,
            },
            Place::Encoded { mut block, skip } => {
                block.blob = self.blob(layer, block.blob)?;
                Place::Encoded { block, skip }
            }
            place @ (Place::Zero | Place::Inline(_)) => place,
        };
        Ok(Extent { place, ..extent })
    }

    /// Returns the layer of a block, and the block as that layer knows it.
    fn block_of_layer(&self, block: &EncodedBlock) -> Result<(&Layer, EncodedBlock)> {
        let (layer, blob) = self.known_blob(block.blob)?;
        Ok((layer, EncodedBlock { blob, ..*block }))
    }

    fn known_blob(&self, blob: BlobId) -> Result<(&Layer, BlobId)> {
        let unknown = || Error::Unsupported(format!("blob {} of no layer", blob.0));
        self.split_blob(blob).ok_or_else(unknown)
    }

    /// Opens a blob of a layer, or the image of one.
    pub fn open_blob(&self, blob: BlobId) -> Result<Arc<dyn ReadAt>> {
        let (layer, inner) = self.known_blob(blob)?;
        match inner {
            BlobId::IMAGE => Ok(Arc::clone(&layer.image)),
            inner => {
                let opened = layer.fs.blob(inner);
                opened.map_err(|error| error.in_image(&layer.name))
            }
        }
    }

    /// Returns the bytes that a block refers to.
    pub fn history(&self, block: &EncodedBlock) -> Result<Vec<u8>> {
        let (layer, of_layer) = self.block_of_layer(block)?;
        let history = layer.fs.history(&of_layer);
        history.map_err(|error| error.in_image(&layer.name))
    }

    /// Has the layer verify the decoded bytes of a block.
    pub fn verify(&self, block: &EncodedBlock, decoded: &[u8]) -> Result<()> {
        let (layer, of_layer) = self.block_of_layer(block)?;
        let verified = layer.fs.verify(&of_layer, decoded);
        verified.map_err(|error| error.in_image(&layer.name))
    }

    /// Has the layer verify the stored bytes of a block.
    pub fn verify_stored(&self, block: &EncodedBlock, stored: &[u8]) -> Result<()> {
        let (layer, of_layer) = self.block_of_layer(block)?;
        let verified = layer.fs.verify_stored(&of_layer, stored);
        verified.map_err(|error| error.in_image(&layer.name))
    }

    /// Returns whether the layer of a place has checksums of its own for it.
    pub fn proves(&self, place: &Place) -> bool {
        let (blob, of_layer) = match place {
            Place::Encoded { block, .. } => (block.blob, place.clone()),
            Place::Stored { blob, .. } => (*blob, place.clone()),
            Place::Zero | Place::Inline(_) => return false,
        };
        let Some((layer, inner)) = self.split_blob(blob) else {
            return false;
        };
        layer.fs.proves(&match of_layer {
            Place::Encoded { block, skip } => Place::Encoded {
                block: EncodedBlock {
                    blob: inner,
                    ..block
                },
                skip,
            },
            Place::Stored { offset, .. } => Place::Stored {
                blob: inner,
                offset,
            },
            other => other,
        })
    }

    /// Returns the name of the layer that has a blob.
    pub fn image_of(&self, blob: BlobId) -> Option<Arc<str>> {
        let (layer, _) = self.split_blob(blob)?;
        Some(Arc::clone(&layer.name))
    }

    /// Returns whether a blob that was opened before may still be read.
    pub fn is_current(&self, blob: BlobId) -> bool {
        match self.split_blob(blob) {
            Some((_, BlobId::IMAGE)) | None => true,
            Some((layer, inner)) => layer.fs.is_current(inner),
        }
    }
}
