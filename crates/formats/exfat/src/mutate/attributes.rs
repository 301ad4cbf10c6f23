//! Changes lengths, times and the one permission bit that exFAT stores.

use forerun_vfs::{Changes, Error, FileType, NodeId, Result};

use crate::nodes::ROOT;
use crate::ondisk::attribute;
use crate::session::Session;
use crate::time::now;

impl Session<'_> {
    /// Makes the changes that the format can store. Implements
    /// [`FileSystemMut::change`](forerun_vfs::FileSystemMut::change).
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

    /// Sets the attributes that users may change: all except the directory attribute. `Unsupported`
    /// for the root, which has no entry.
    pub fn set_fat_attributes(&mut self, id: NodeId, wanted: u32) -> Result<()> {
        if id == ROOT {
            return Err(Error::Unsupported(
                "attributes of the root directory".into(),
            ));
        }
        let mut node = self.load_to_change(id)?;
        node.recognized()?;
        let before = node.set.clone();
        for changeable in [
            attribute::READ_ONLY,
            attribute::HIDDEN,
            attribute::SYSTEM,
            attribute::ARCHIVE,
        ] {
            node.set
                .set_attribute(changeable, wanted & u32::from(changeable) != 0);
        }
        if node.set == before {
            Ok(())
        } else {
            self.update(&node)
        }
    }
}
