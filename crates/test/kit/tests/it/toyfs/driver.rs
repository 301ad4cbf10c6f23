//! The calls of the toy volume.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::Ordering;

use forerun_io::BlobId;
use forerun_vfs::{
    Changes, DirCursor, DirEntry, Error, Extent, FileSystem, FileSystemMut, FileType, Metadata,
    NewNode, NodeId, Place, Result, Space, Timestamp, Usage, VolumeInfo,
};

use super::{CLUSTER, DATA, Mistake, Node, State, ToyFs};

fn kind(node: &Node) -> FileType {
    if node.directory {
        FileType::Directory
    } else {
        FileType::Regular
    }
}

fn child(state: &State, dir: NodeId, name: &[u8]) -> Option<u64> {
    let mut nodes = state.nodes.iter();
    let found = nodes.find(|(_, node)| node.parent == dir.0 && node.name == name);
    found.map(|(&id, _)| id)
}

fn cluster_extents(
    node: &Node,
    range: Range<u64>,
    visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
) {
    let mut at = range.start;
    while at < range.end {
        let index = at / CLUSTER;
        let end = ((index + 1) * CLUSTER).min(range.end);
        let number = u64::from(node.clusters[index as usize]);
        let place = Place::Stored {
            blob: BlobId::IMAGE,
            offset: DATA + number * CLUSTER + at % CLUSTER,
        };
        let logical = at..end;
        if visit(Extent { logical, place }).is_break() {
            return;
        }
        at = end;
    }
}

impl FileSystem for ToyFs {
    fn volume(&self) -> VolumeInfo {
        VolumeInfo::new("toy", self.device.len(), 512)
    }

    fn root(&self) -> NodeId {
        NodeId(0)
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        let mut state = self.lock();
        let root = Node {
            parent: 0,
            name: Vec::new(),
            directory: true,
            len: 0,
            valid: 0,
            clusters: Vec::new(),
        };
        let node = match node.0 {
            0 => &root,
            id => &*state.node(id)?,
        };
        Ok(Metadata {
            kind: kind(node),
            mode: 0o755,
            uid: 0,
            gid: 0,
            size: node.len,
            nlink: 1,
            mtime: Timestamp::default(),
            device: forerun_vfs::Device::default(),
        })
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        Ok(child(&self.lock(), dir, name).map(NodeId))
    }

    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let state = self.lock();
        for (&id, node) in state.nodes.range(from.0..) {
            let entry = DirEntry {
                name: &node.name,
                node: NodeId(id),
                kind: kind(node),
                next: DirCursor(id + 1),
            };
            if node.parent == dir.0 && id != 0 && visit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read_link(&self, _: NodeId) -> Result<Vec<u8>> {
        Err(Error::NotASymlink)
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut state = self.lock();
        let node = state.node(node.0)?;
        let range = range.start..range.end.min(node.len);
        let stored = range.start..range.end.min(node.valid);
        cluster_extents(node, stored.clone(), visit);
        let zeros = stored.end.max(range.start)..range.end;
        if !zeros.is_empty() {
            let (logical, place) = (zeros, Place::Zero);
            let _end = visit(Extent { logical, place });
        }
        Ok(())
    }

    fn describe(&self, _: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        Ok(Vec::new())
    }
}

impl FileSystemMut for ToyFs {
    fn usage(&self, node: NodeId) -> Result<Usage> {
        let time = Timestamp::default();
        Ok(Usage {
            accessed: time,
            created: time,
            allocated: self.lock().node(node.0)?.clusters.len() as u64 * CLUSTER,
        })
    }

    fn create(&self, dir: NodeId, name: &[u8], new: &NewNode) -> Result<NodeId> {
        let mut state = self.lock();
        if child(&state, dir, name).is_some() {
            return Err(Error::Exists);
        }
        let id = state.next;
        state.next += 1;
        let node = Node {
            parent: dir.0,
            name: name.to_vec(),
            directory: new.kind == FileType::Directory,
            len: 0,
            valid: 0,
            clusters: Vec::new(),
        };
        state.nodes.insert(id, node);
        self.commit_name(&mut state)?;
        Ok(NodeId(id))
    }

    fn unlink(&self, dir: NodeId, name: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let id = child(&state, dir, name).ok_or(Error::NotFound)?;
        if state.nodes[&id].directory {
            return Err(Error::IsADirectory);
        }
        state.remove(id);
        self.commit_name(&mut state)
    }

    fn rmdir(&self, dir: NodeId, name: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let id = child(&state, dir, name).ok_or(Error::NotFound)?;
        if !state.nodes[&id].directory {
            return Err(Error::NotADirectory);
        }
        if state.nodes.values().any(|node| node.parent == id) {
            return Err(Error::NotEmpty);
        }
        state.remove(id);
        self.commit_name(&mut state)
    }

    fn rename(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), replace: bool) -> Result<()> {
        let mut state = self.lock();
        let id = child(&state, from.0, from.1).ok_or(Error::NotFound)?;
        let mut above = to.0.0;
        while above != 0 {
            if above == id {
                return Err(Error::IntoItself);
            }
            above = state.nodes[&above].parent;
        }
        if let Some(other) = child(&state, to.0, to.1) {
            if other == id {
                return Ok(());
            }
            match (state.nodes[&id].directory, state.nodes[&other].directory) {
                _ if !replace => return Err(Error::Exists),
                (false, true) => return Err(Error::IsADirectory),
                (true, false) => return Err(Error::NotADirectory),
                (true, true) if state.nodes.values().any(|node| node.parent == other) => {
                    return Err(Error::NotEmpty);
                }
                _ => state.remove(other),
            }
        }
        let mut moved = state.nodes[&id].clone();
        moved.parent = to.0.0;
        moved.name = to.1.to_vec();
        if self.mistake == Mistake::RenameInTwoSteps {
            state.nodes.remove(&id);
            self.commit(&mut state)?;
        }
        if self.mistake == Mistake::RenameDoubles {
            state.nodes.insert(id + 1000, moved.clone());
            self.commit(&mut state)?;
            state.nodes.remove(&(id + 1000));
        }
        state.nodes.insert(id, moved);
        self.commit_name(&mut state)
    }

    fn change(&self, node: NodeId, changes: &Changes) -> Result<Metadata> {
        if let Some(len) = changes.size {
            let mut state = self.lock();
            self.grow(&mut state, node.0, len)?;
            let toy = state.node(node.0)?;
            toy.len = len;
            toy.valid = toy.valid.min(len);
            let freed = toy.clusters.split_off(len.div_ceil(CLUSTER) as usize);
            state.freed.extend(freed);
        }
        self.metadata(node)
    }

    fn map_write(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut state = self.lock();
        self.grow(&mut state, node.0, range.end)?;
        let toy = state.node(node.0)?;
        let start = match self.mistake {
            Mistake::ForgetsGap => range.start,
            _ => range.start.min(toy.valid),
        };
        cluster_extents(toy, start..range.end, visit);
        Ok(())
    }

    fn written(&self, node: NodeId, range: Range<u64>, _: Timestamp) -> Result<()> {
        let mut state = self.lock();
        let toy = state.node(node.0)?;
        toy.len = toy.len.max(range.end);
        toy.valid = toy.valid.max(range.end);
        Ok(())
    }

    fn allocate(&self, _: NodeId, _: Range<u64>, _: bool) -> Result<()> {
        Err(Error::Unsupported("allocation ahead".into()))
    }

    fn open(&self, _: NodeId) -> Result<()> {
        Ok(())
    }

    fn release(&self, _: NodeId) -> Result<()> {
        Ok(())
    }

    fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    fn sync(&self, _: NodeId) -> Result<()> {
        match self.mistake {
            Mistake::SyncDoesNothing => Ok(()),
            _ => self.sync_all(),
        }
    }

    fn sync_all(&self) -> Result<()> {
        self.commit(&mut self.lock())
    }

    fn finish(&self) -> Result<()> {
        self.sync_all()
    }

    fn space(&self) -> Result<Space> {
        Err(Error::Unsupported("statfs".into()))
    }

    fn trim(&self, _: Range<u64>, _: u64) -> Result<u64> {
        Err(Error::Unsupported("trim".into()))
    }

    fn set_label(&self, _: &[u8]) -> Result<()> {
        Err(Error::Unsupported("labels".into()))
    }
}
