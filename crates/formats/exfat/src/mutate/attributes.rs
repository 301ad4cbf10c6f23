//! Changes of lengths, times and the one permission that exFAT keeps.

use forerun_vfs::{Changes, FileType, NodeId, Result};

use crate::nodes::ROOT;
use crate::ondisk::attribute;
use crate::session::Session;
use crate::time::now;

impl Session<'_> {
    /// Makes those `changes` that the format can keep.
    ///
    /// # Errors
    /// The errors of [`FileSystemMut::change`](forerun_vfs::FileSystemMut::change).
    pub fn set_attributes(&mut self, id: NodeId, changes: &Changes) -> Result<()> {
        if changes.size.is_some() {
            self.file(id)?;
        }
        if id == ROOT {
            // The root has no entry.
            return Ok(());
        }
        let mut node = self.load_to_change(id)?;
        node.recognized()?;
        let before = node.set.clone();
        if let Some(len) = changes.size
            && len != node.set.data().len
        {
            self.resize(&mut node, len)?;
            node.set.set_modified(self.stamp(now()));
        }
        if let Some(permissions) = changes.permissions
            && node.set.file_type() == FileType::Regular
        {
            let read_only = permissions & 0o222 == 0;
            node.set.set_attribute(attribute::READ_ONLY, read_only);
        }
        if let Some(time) = changes.accessed {
            node.set.set_accessed(self.stamp(time));
        }
        if let Some(time) = changes.modified {
            node.set.set_modified(self.stamp(time));
        }
        if let Some(time) = changes.created {
            node.set.set_created(self.stamp(time));
        }
        if node.set == before {
            Ok(())
        } else {
            self.update(&node)
        }
    }
}
