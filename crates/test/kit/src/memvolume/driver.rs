//! The read-only half of the driver.

use std::ops::{ControlFlow, Range};

use forerun_vfs::{
    DirCursor, DirEntry, Error, Extent, FileSystem, Metadata, NodeId, Place, Result, VolumeInfo,
};

use super::{MemVolume, ROOT, alloc};

impl FileSystem for MemVolume {
    fn volume(&self) -> &VolumeInfo {
        &self.info
    }

    fn root(&self) -> NodeId {
        NodeId(ROOT)
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        Ok(self.state().node(node)?.metadata.clone())
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        let state = self.state();
        Ok(self.find(state.dir(dir)?, name).map(|(_, id)| NodeId(id)))
    }

    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let state = self.state();
        for (&cookie, (name, id)) in state.dir(dir)?.entries.range(from.0 + 1..) {
            let entry = DirEntry {
                name,
                node: NodeId(*id),
                kind: state.node(NodeId(*id))?.metadata.kind,
                next: DirCursor(cookie),
            };
            if visit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        self.state().node(node)?;
        Err(Error::NotASymlink)
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let state = self.state();
        let file = state.file(node)?;
        let end = range.end.min(file.metadata.size);
        let stored = range.start..end.min(file.valid);
        if alloc::visit(&file.clusters, self.cluster, stored, visit).is_continue() {
            let logical = range.start.max(file.valid)..end;
            if !logical.is_empty() {
                let place = Place::Zero;
                let _is_the_last = visit(Extent { logical, place });
            }
        }
        Ok(())
    }
}
