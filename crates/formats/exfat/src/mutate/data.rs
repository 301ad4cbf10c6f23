//! Writes file data: maps ranges to extents, and updates the entry sets.

use std::ops::Range;

use forerun_vfs::{Error, Extent, FileType, NodeId, Result, Timestamp};

use crate::nodes::ROOT;
use crate::session::{Node, Session, stored};

impl Session<'_> {
    /// Loads a regular file that may be written.
    pub fn file(&mut self, id: NodeId) -> Result<Node> {
        if id == ROOT {
            return Err(Error::IsADirectory);
        }
        let node = self.load_to_change(id)?;
        if node.set.file_type() == FileType::Directory {
            return Err(Error::IsADirectory);
        }
        node.recognized()?;
        Ok(node)
    }

    /// Returns the extents for a write of `range`. They begin at the end of the valid data if the
    /// write begins after it. Implements
    /// [`FileSystemMut::map_write`](forerun_vfs::FileSystemMut::map_write).
    pub fn map_write(&mut self, id: NodeId, range: Range<u64>) -> Result<Vec<Extent>> {
        let node = self.file(id)?;
        if range.start >= range.end {
            return Ok(Vec::new());
        }
        let need = self.clusters_for(range.end)?;
        let mut chain = self.chain(id)?;
        if need > chain.clusters() {
            chain = self.grow_chain(id, need)?;
            let len = node.set.data().len;
            self.settle_chain(&node, chain.clone(), len);
        }
        let start = range.start.min(node.set.valid_len());
        let mut extents = Vec::new();
        stored(self.volume, &chain, start..range.end, &mut extents);
        Ok(extents)
    }

    /// Records that the bytes of a write are on the device. Implements
    /// [`FileSystemMut::written`](forerun_vfs::FileSystemMut::written).
    pub fn written(&mut self, id: NodeId, range: Range<u64>, time: Timestamp) -> Result<()> {
        let store = self.writable()?;
        let mut node = self.file(id)?;
        store.back.note_data_written();
        if range.start >= range.end {
            return Ok(());
        }
        let chain = self.chain(id)?;
        let room = u64::from(chain.clusters()) << self.volume.boot.cluster_bits;
        if range.end > room {
            // Another request has truncated the file meanwhile.
            return Err(Error::StaleNode(id));
        }
        let len = node.set.data().len.max(range.end);
        let valid = node.set.valid_len().max(range.end);
        let stamp = self.stamp(time);
        node.set.set_modified(stamp);
        if len != node.set.data().len {
            self.describe_data(&mut node, &chain, len, valid);
            self.settle_chain(&node, chain, len);
        } else {
            let data = node.set.data();
            node.set.set_data(data, valid);
        }
        self.update(&node)
    }

    /// Implements [`FileSystemMut::allocate`](forerun_vfs::FileSystemMut::allocate).
    pub fn allocate(&mut self, id: NodeId, range: Range<u64>, keep_size: bool) -> Result<()> {
        let mut node = self.file(id)?;
        let len = node.set.data().len;
        self.clusters_for(range.end)?;
        if keep_size {
            let room = self.volume.boot.clusters_for(len) << self.volume.boot.cluster_bits;
            return match range.end <= room {
                true => Ok(()),
                // An entry set cannot describe clusters beyond its length.
                false => Err(Error::Unsupported(
                    "allocating behind the end of a file".into(),
                )),
            };
        }
        if range.end <= len {
            return Ok(());
        }
        self.resize(&mut node, range.end)?;
        let stamp = self.stamp(crate::time::now());
        node.set.set_modified(stamp);
        self.update(&node)
    }

    /// Returns whether the last release of the node frees clusters: the node has no name, or more
    /// clusters than its length needs. A volume that refuses changes frees nothing.
    pub fn frees_at_release(&self, id: NodeId) -> bool {
        let pending = &self.state.pending;
        let has_spare = pending.orphan(id).is_some() || pending.ahead.contains(&id);
        has_spare && self.writable().is_ok()
    }

    /// Ends one use of a node. The last release frees all clusters of a nameless node, and the
    /// clusters beyond the length of any other.
    pub fn release(&mut self, id: NodeId) -> Result<()> {
        if self.state.pending.release(id) {
            self.free_unused(id)
        } else {
            Ok(())
        }
    }

    /// Frees the clusters that a node without users no longer needs.
    fn free_unused(&mut self, id: NodeId) -> Result<()> {
        if self.state.pending.orphan(id).is_some() {
            return self.bury(id);
        }
        if self.state.pending.ahead.contains(&id) {
            let node = self.load(id)?;
            self.trim_ahead(&node)?;
        }
        Ok(())
    }

    /// Ends all uses, and makes everything durable. Returns the first error, but still frees the
    /// other nodes.
    pub fn finish(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        if self.writable().is_ok() {
            for id in self.state.pending.end_uses() {
                let freed = self.change(false, |session| session.free_unused(id));
                outcome = outcome.and(freed);
            }
        }
        let committed = self.commit(true);
        outcome.and(committed)
    }
}
