//! The changing half of the driver.

use std::ops::{ControlFlow, Range};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use forerun_io::u64_from;
use forerun_vfs::{
    Changes, Error, Extent, FileSystem, FileSystemMut, FileType, Metadata, NewNode, NodeId, Result,
    Space, Timestamp, Usage, check_name,
};

use super::{MemNode, MemVolume, MemVolumeState, NAME_MAX, alloc};

const SIZE_MAX: u64 = 1 << 40;

impl MemVolume {
    pub(super) fn find(&self, dir: &MemNode, name: &[u8]) -> Option<(u64, u64)> {
        let mut entries = dir.entries.iter();
        let found = entries.find(|(_, (entry, _))| self.same(entry, name));
        found.map(|(cookie, (_, id))| (*cookie, *id))
    }

    /// Locks the state for a change, unless changes are refused.
    fn changing(&self) -> Result<MutexGuard<'_, MemVolumeState>> {
        let mut state = self.state();
        if state.broken {
            return Err(Error::ReadOnly("broken down on purpose".into()));
        }
        if state.abandoned {
            return Err(Error::ReadOnly("a thread panicked".into()));
        }
        state.dirty = true;
        Ok(state)
    }

    fn remove(&self, dir: NodeId, name: &[u8], directory: bool) -> Result<()> {
        let mut state = self.changing()?;
        let found = self.find(state.dir(dir)?, name);
        let (cookie, id) = found.ok_or(Error::NotFound)?;
        state.can_go(id, directory)?;
        state.node_mut(dir)?.entries.remove(&cookie);
        state.unlinked(id);
        Ok(())
    }
}

impl MemVolumeState {
    /// Checks that the node has the kind to be removed, and is empty.
    fn can_go(&self, id: u64, directory: bool) -> Result<()> {
        let node = self.node(NodeId(id))?;
        match (node.is_dir(), directory) {
            (true, false) => Err(Error::IsADirectory),
            (false, true) => Err(Error::NotADirectory),
            (true, true) if !node.entries.is_empty() => Err(Error::NotEmpty),
            _ => Ok(()),
        }
    }

    fn unlinked(&mut self, id: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.linked = false;
            node.metadata.nlink = 0;
        }
        self.drop_unused(id);
    }

    fn drop_unused(&mut self, id: u64) {
        let unused = |node: &MemNode| !node.linked && node.uses == 0;
        if self.nodes.get(&id).is_some_and(unused)
            && let Some(mut node) = self.nodes.remove(&id)
        {
            self.clusters.shrink(&mut node.clusters, 0);
        }
    }

    pub(super) fn link(&mut self, dir: NodeId, name: &[u8], id: u64) -> Result<()> {
        let node = self.node_mut(dir)?;
        node.entries.insert(node.next_cookie, (name.to_vec(), id));
        node.next_cookie += 1;
        self.node_mut(NodeId(id))?.parent = dir.0;
        Ok(())
    }

    /// Allocates space for a total of `len` bytes.
    fn reserve(&mut self, node: NodeId, len: u64, cluster: u64) -> Result<()> {
        if len > SIZE_MAX {
            return Err(Error::TooLarge);
        }
        self.file(node)?;
        let mut list = std::mem::take(&mut self.node_mut(node)?.clusters);
        let grown = self.clusters.grow(&mut list, len.div_ceil(cluster));
        self.node_mut(node)?.clusters = list;
        grown
    }
}

fn checked(name: &[u8]) -> Result<()> {
    Ok(check_name(name, NAME_MAX)?)
}

impl FileSystemMut for MemVolume {
    fn usage(&self, node: NodeId) -> Result<Usage> {
        let state = self.state();
        let node = state.node(node)?;
        Ok(Usage {
            accessed: node.accessed,
            created: node.created,
            allocated: u64_from(node.clusters.len()) * self.cluster,
        })
    }

    fn create(&self, dir: NodeId, name: &[u8], new: &NewNode) -> Result<NodeId> {
        checked(name)?;
        let mut state = self.changing()?;
        if self.find(state.dir(dir)?, name).is_some() {
            return Err(Error::Exists);
        }
        if !matches!(new.kind, FileType::Regular | FileType::Directory) {
            return Err(Error::Unsupported(new.kind.name().into()));
        }
        let id = state.next;
        state.next += 1;
        let mode = u16::try_from(new.permissions & 0o7777).unwrap_or(0);
        state
            .nodes
            .insert(id, MemNode::new(new.kind, mode, new.time));
        state.link(dir, name, id)?;
        state.node_mut(dir)?.metadata.mtime = new.time;
        Ok(NodeId(id))
    }

    fn unlink(&self, dir: NodeId, name: &[u8]) -> Result<()> {
        self.remove(dir, name, false)
    }

    fn rmdir(&self, dir: NodeId, name: &[u8]) -> Result<()> {
        self.remove(dir, name, true)
    }

    fn rename(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), replace: bool) -> Result<()> {
        checked(to.1)?;
        let mut state = self.changing()?;
        let found = self.find(state.dir(from.0)?, from.1);
        let (cookie, id) = found.ok_or(Error::NotFound)?;
        let directory = state.node(NodeId(id))?.is_dir();
        let mut above = to.0;
        while directory && above != self.root() {
            if above.0 == id {
                return Err(Error::IntoItself);
            }
            above = NodeId(state.node(above)?.parent);
        }
        if let Some((old_cookie, old)) = self.find(state.dir(to.0)?, to.1)
            && old != id
        {
            if !replace {
                return Err(Error::Exists);
            }
            state.can_go(old, directory)?;
            state.node_mut(to.0)?.entries.remove(&old_cookie);
            state.unlinked(old);
        }
        state.node_mut(from.0)?.entries.remove(&cookie);
        state.link(to.0, to.1, id)
    }

    fn change(&self, node: NodeId, changes: &Changes) -> Result<Metadata> {
        let mut state = self.changing()?;
        if let Some(size) = changes.size {
            state.reserve(node, size, self.cluster)?;
            let mut list = std::mem::take(&mut state.node_mut(node)?.clusters);
            state
                .clusters
                .shrink(&mut list, size.div_ceil(self.cluster));
            let file = state.node_mut(node)?;
            file.clusters = list;
            file.valid = file.valid.min(size);
            file.metadata.size = size;
        }
        let target = state.node_mut(node)?;
        if let Some(permissions) = changes.permissions {
            target.metadata.mode = u16::try_from(permissions & 0o7777).unwrap_or(0);
        }
        target.metadata.mtime = changes.modified.unwrap_or(target.metadata.mtime);
        target.accessed = changes.accessed.unwrap_or(target.accessed);
        target.created = changes.created.unwrap_or(target.created);
        Ok(target.metadata.clone())
    }

    fn map_write(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut state = self.changing()?;
        state.reserve(node, range.end, self.cluster)?;
        let file = state.file(node)?;
        let all = range.start.min(file.valid)..range.end;
        let _whether_all_were_wanted = alloc::visit(&file.clusters, self.cluster, all, visit);
        Ok(())
    }

    fn written(&self, node: NodeId, range: Range<u64>, time: Timestamp) -> Result<()> {
        let mut state = self.changing()?;
        let file = state.node_mut(node)?;
        file.valid = file.valid.max(range.end);
        file.metadata.size = file.metadata.size.max(range.end);
        file.metadata.mtime = time;
        Ok(())
    }

    fn allocate(&self, node: NodeId, range: Range<u64>, keep_size: bool) -> Result<()> {
        let mut state = self.changing()?;
        state.reserve(node, range.end, self.cluster)?;
        let file = state.node_mut(node)?;
        if !keep_size {
            file.metadata.size = file.metadata.size.max(range.end);
        }
        Ok(())
    }

    fn open(&self, node: NodeId) -> Result<()> {
        self.state().node_mut(node)?.uses += 1;
        Ok(())
    }

    fn release(&self, node: NodeId) -> Result<()> {
        let mut state = self.state();
        let target = state.node_mut(node)?;
        target.uses = target.uses.saturating_sub(1);
        state.drop_unused(node.0);
        Ok(())
    }

    fn abandon(&self) {
        self.state().abandoned = true;
    }

    fn is_abandoned(&self) -> bool {
        self.state().abandoned
    }

    fn sync(&self, node: NodeId) -> Result<()> {
        self.state().node(node)?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        self.state().dirty = false;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        let mut state = self.state();
        let ids: Vec<u64> = state.nodes.keys().copied().collect();
        for id in ids {
            if let Ok(node) = state.node_mut(NodeId(id)) {
                node.uses = 0;
            }
            state.drop_unused(id);
        }
        drop(state);
        self.sync_all()
    }

    fn space(&self) -> Result<Space> {
        let state = self.state();
        Ok(Space {
            block_size: self.volume_block(),
            blocks: state.clusters.count(),
            free: state.clusters.free(),
        })
    }

    fn trim(&self, range: Range<u64>, min_len: u64) -> Result<u64> {
        let (start, end) = (range.start.min(self.device.len()), range.end);
        let free = self.state().clusters.free() * self.cluster;
        let len = end.min(self.device.len()).saturating_sub(start).min(free);
        Ok(if len < min_len { 0 } else { len })
    }

    fn label(&self) -> Result<Vec<u8>> {
        Ok(self.state().label.clone())
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        self.changing()?.label = label.to_vec();
        Ok(())
    }
}

impl MemVolume {
    fn volume_block(&self) -> u32 {
        u32::try_from(self.cluster).unwrap_or(u32::MAX)
    }
}
