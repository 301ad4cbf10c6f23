//! Removes names, and nodes that have lost their last name.

use forerun_vfs::{Error, FileType, NodeId, Result};

use crate::clusters;
use crate::dir::{Found, Slots};
use crate::entry_set::Allocation;
use crate::session::{Node, Session};
use crate::store::group;
use crate::time::now;

type Clusters = Vec<(u32, u32)>;

impl Session<'_> {
    /// Implements [`FileSystemMut::unlink`](forerun_vfs::FileSystemMut::unlink).
    pub fn unlink(&mut self, dir: NodeId, name: &[u8]) -> Result<()> {
        self.after_moves()?;
        let mut entry = self.find(dir, name)?.ok_or(Error::NotFound)?;
        if entry.node.set.file_type() == FileType::Directory {
            return Err(Error::IsADirectory);
        }
        self.changeable_but_for_removal(dir)?;
        self.remove(dir, entry.slot, &mut entry.node)
    }

    /// Implements [`FileSystemMut::rmdir`](forerun_vfs::FileSystemMut::rmdir).
    pub fn rmdir(&mut self, dir: NodeId, name: &[u8]) -> Result<()> {
        self.after_moves()?;
        let mut entry = self.find(dir, name)?.ok_or(Error::NotFound)?;
        if entry.node.set.file_type() != FileType::Directory {
            return Err(Error::NotADirectory);
        }
        self.changeable_but_for_removal(dir)?;
        self.is_empty(entry.node.id)?;
        self.remove(dir, entry.slot, &mut entry.node)
    }

    fn changeable_but_for_removal(&mut self, dir: NodeId) -> Result<()> {
        match self.changeable(dir) {
            // Sets with unknown entries may still be removed (8.2).
            Err(Error::Unsupported(_)) => Ok(()),
            other => other,
        }
    }

    /// Fails with `NotEmpty` unless the directory is empty, and with `Corrupt` if damage prevents
    /// the answer.
    pub fn is_empty(&mut self, dir: NodeId) -> Result<()> {
        let index = self.index(dir)?;
        match &index.damaged {
            _ if !index.is_empty() => Err(Error::NotEmpty),
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    fn remove(&mut self, dir: NodeId, slot: u32, node: &mut Node) -> Result<()> {
        self.forget_origin(node)?;
        let clusters = self.clusters_to_free(node)?;
        self.take_away(dir, slot, &node.set, (group::ENTRIES, group::LATE))?;
        self.nameless(node, clusters)?;
        self.touch(dir, now())
    }

    /// Returns the clusters of a node whose name is about to be removed. Returns `None` if damage
    /// hides them and the options tolerate damage; the clusters then stay marked used.
    pub fn clusters_to_free(&mut self, node: &Node) -> Result<Option<Clusters>> {
        match self.clusters_of(node) {
            Ok(clusters) => Ok(Some(clusters)),
            Err(Error::Corrupt(_)) if self.store.is_some_and(|s| s.continue_on_error) => {
                // A check finds these lost clusters.
                self.state.pending.was_dirty = true;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn clusters_of(&mut self, node: &Node) -> Result<Clusters> {
        let chain = self.chain(node.id)?;
        let mut clusters: Clusters = chain.runs().iter().map(|r| (r.cluster, r.count)).collect();
        let mut others = node.set.other_allocations();
        if node.set.file_type() == FileType::Directory {
            others.extend(self.allocations_within(node.id)?);
        }
        for data in others {
            let chain = clusters::chain(self.volume, Some(node.id), node.at(), data)?;
            clusters.extend(chain.runs().iter().map(|r| (r.cluster, r.count)));
        }
        Ok(clusters)
    }

    /// Returns the allocations of benign sets in an empty directory, which are freed with their
    /// entries (8.2).
    fn allocations_within(&mut self, dir: NodeId) -> Result<Vec<Allocation>> {
        let chain = self.chain(dir)?;
        let mut slots = Slots::new(self.volume, &chain, Some(dir));
        let (mut slot, mut found) = (0, Vec::new());
        while let Some((item, next)) = slots.next_item(slot)? {
            if let Found::Benign { allocations, .. } = item {
                found.extend(allocations);
            }
            slot = next;
        }
        Ok(found)
    }

    /// Frees the clusters of a node that has lost its last name, now or at its last release.
    pub fn nameless(&mut self, node: &Node, clusters: Option<Clusters>) -> Result<()> {
        let is_directory = node.set.file_type() == FileType::Directory;
        if is_directory {
            self.drop_index(node.id);
            self.state
                .pending
                .late_slots
                .retain(|late| late.0 != node.id);
        }
        if let Some(place) = node.place {
            self.state.nodes.remove(node.id, place);
        }
        if self.state.pending.is_open(node.id) {
            self.state.pending.keep_orphan(node.id, node.set.clone());
            return Ok(());
        }
        self.forget(node.id);
        self.free(&clusters.unwrap_or_default(), is_directory)
    }

    fn forget(&mut self, id: NodeId) {
        self.drop_chain(id);
        self.state.pending.ahead.remove(&id);
        self.state.pending.cut_nodes.remove(&id);
    }

    /// Frees a nameless node at its last release.
    pub fn bury(&mut self, id: NodeId) -> Result<()> {
        let node = self.load(id)?;
        let clusters = self.clusters_to_free(&node)?;
        self.state.pending.take_orphan(id);
        let is_directory = node.set.file_type() == FileType::Directory;
        self.drop_index(id);
        self.forget(id);
        self.free(&clusters.unwrap_or_default(), is_directory)
    }
}
