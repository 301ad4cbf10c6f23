use std::ops::ControlFlow;

use forerun_vfs::{NodeId, Place, Result};

use super::Volume;

impl Volume {
    /// Returns the offset of the first stored byte at or after `offset`; `None` if there is none.
    ///
    /// # Errors
    /// The errors of [`map`](forerun_vfs::FileSystem::map).
    pub fn seek_data(&self, node: NodeId, offset: u64) -> Result<Option<u64>> {
        self.seek(node, offset, false)
    }

    /// Returns the offset of the first byte at or after `offset` that is not stored, or the end of
    /// the file, which counts as a hole. Returns `None` if `offset` is at or past the end.
    ///
    /// # Errors
    /// The errors of [`map`](forerun_vfs::FileSystem::map).
    pub fn seek_hole(&self, node: NodeId, offset: u64) -> Result<Option<u64>> {
        self.seek(node, offset, true)
    }

    fn seek(&self, node: NodeId, offset: u64, hole: bool) -> Result<Option<u64>> {
        let _no_writer = self.shared(node);
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
