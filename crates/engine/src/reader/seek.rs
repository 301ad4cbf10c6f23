//! Offsets of data and holes in a file.

use std::ops::ControlFlow;

use forerun_vfs::{NodeId, Place, Result};

use super::Reader;

impl Reader {
    /// Returns the first offset at or after `offset` that holds data, or `None` if only holes
    /// follow.
    ///
    /// # Errors
    /// The errors of [`FileSystem::map`](forerun_vfs::FileSystem::map).
    pub fn seek_data(&self, node: NodeId, offset: u64) -> Result<Option<u64>> {
        self.seek(node, offset, |place| !matches!(place, Place::Zero))
    }

    /// Returns the first offset at or after `offset` that lies in a hole; the end of the file
    /// counts as one. Returns `None` if `offset` is at or past the end.
    ///
    /// # Errors
    /// The errors of [`FileSystem::map`](forerun_vfs::FileSystem::map).
    pub fn seek_hole(&self, node: NodeId, offset: u64) -> Result<Option<u64>> {
        let size = self.file_size(node)?;
        let hole = self.seek(node, offset, |place| matches!(place, Place::Zero))?;
        Ok(hole.or((offset < size).then_some(size)))
    }

    fn seek(
        &self,
        node: NodeId,
        offset: u64,
        wanted: impl Fn(&Place) -> bool,
    ) -> Result<Option<u64>> {
        let range = offset..self.file_size(node)?;
        let mut found = None;
        self.visit(node, range, &mut |extent| {
            if wanted(&extent.place) {
                found = Some(extent.logical.start.max(offset));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}
