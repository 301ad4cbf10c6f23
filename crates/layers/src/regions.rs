//! The parts of the layers that are not file contents. The image of the merge consists of the
//! layers' images, one after another, the lowest first.

use std::ops::{ControlFlow, Range};

use forerun_vfs::{BlobId, FileSystem, NodeId, Region, Result};

use crate::ids::LayerNode;
use crate::stack::Stack;

type Visit<'v> = &'v mut dyn FnMut(Region) -> ControlFlow<()>;

/// The ranges of the layers in the image of the merge.
pub struct Ranges(Vec<Range<u64>>);

impl Ranges {
    pub fn new(stack: &Stack) -> Self {
        let mut end = 0_u64;
        let layers = stack.layers().iter().map(|layer| {
            let start = end;
            end += layer.fs.volume().image_len;
            start..end
        });
        Self(layers.collect())
    }

    pub fn of(&self, layer: u16) -> Option<Range<u64>> {
        self.0.get(usize::from(layer)).cloned()
    }

    /// Returns the range of the layer whose image is this blob.
    pub fn of_blob(&self, stack: &Stack, blob: BlobId) -> Option<Range<u64>> {
        let (layer, inner) = stack.layer_of(blob);
        self.of(layer).filter(|_| inner == BlobId::IMAGE)
    }

    pub fn regions(&self, stack: &Stack, visit: Visit<'_>) -> Result<()> {
        for (layer, number) in stack.layers().iter().zip(0..) {
            let (node, mut goes_on) = (layer.fs.root(), true);
            let at = LayerNode {
                layer: number,
                node,
            };
            self.moved(stack, at, (&mut *visit, &mut goes_on), |fs, _, visit| {
                let layout = fs.capabilities().layout;
                layout.map_or(Ok(()), |layout| layout.regions(visit))
            })?;
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    pub fn regions_of(&self, stack: &Stack, nodes: &[LayerNode], visit: Visit<'_>) -> Result<()> {
        for &at in nodes {
            let mut goes_on = true;
            self.moved(stack, at, (&mut *visit, &mut goes_on), |fs, node, visit| {
                let layout = fs.capabilities().layout;
                layout.map_or(Ok(()), |layout| layout.regions_of(node, visit))
            })?;
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    /// Visits regions of one layer, shifted to the layer's range. Clamps regions that would reach
    /// into the next layer.
    fn moved(
        &self,
        stack: &Stack,
        at: LayerNode,
        (visit, goes_on): (Visit<'_>, &mut bool),
        regions: impl FnOnce(&dyn FileSystem, NodeId, Visit<'_>) -> Result<()>,
    ) -> Result<()> {
        let whole = self.of(at.layer).unwrap_or_default();
        let mut visit_moved = |region: Region| {
            let place = |offset: u64| whole.start + offset.min(whole.end - whole.start);
            let range = place(region.range.start)..place(region.range.end);
            let flow = visit(Region { range, ..region });
            *goes_on = flow.is_continue();
            flow
        };
        stack.call(at, |fs, node| regions(fs, node, &mut visit_moved))
    }
}
