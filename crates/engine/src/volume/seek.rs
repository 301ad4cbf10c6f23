//! Holes and data: what SEEK_HOLE and SEEK_DATA ask for.

use std::ops::ControlFlow;

use forerun_vfs::{NodeId, Place, Result};

use super::Volume;

impl Volume {
    /// The first byte from `offset` on that is stored; nothing where none is, or past the end.
    ///
    /// # Errors
    /// Those of [`map`](forerun_vfs::FileSystem::map).
    pub fn seek_data(&self, node: NodeId, offset: u64) -> Result<Option<u64>> {
        self.seek(node, offset, false)
    }

    /// The first byte from `offset` on that is not stored, or the end of the file, where the last
    /// hole is; nothing past it.
    ///
    /// # Errors
    /// Those of [`map`](forerun_vfs::FileSystem::map).
    pub fn seek_hole(&self, node: NodeId, offset: u64) -> Result<Option<u64>> {
        self.seek(node, offset, true)
    }

    fn seek(&self, node: NodeId, offset: u64, hole: bool) -> Result<Option<u64>> {
        let _nobody_writes = self.shared(node);
        let size = self.fs.metadata(node)?.size;
        let mut found = None;
        self.fs.map(node, offset..size.max(offset), &mut |extent| {
            let is_hole = extent.place == Place::Zero;
            if is_hole != hole {
                return ControlFlow::Continue(());
            }
            found = Some(extent.logical.start.max(offset));
            ControlFlow::Break(())
        })?;
        let end = (hole && offset < size).then_some(size);
        Ok(found.filter(|at| *at < size).or(end))
    }
}
