//! A volume whose metadata is in memory: the smallest implementation of
//! [`FileSystemMut`](forerun_vfs::FileSystemMut), for tests of the layers above a driver.
//!
//! Contents of files are on a device, in clusters allocated from the lowest free one up. A file has
//! a length up to which it was written; bytes after it are foreign unless the caller fills them
//! with zeros, as it must. Only contents are ever written.

mod alloc;
mod driver;
mod driver_mut;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use forerun_io::{BlockDevice, MemoryDevice, Unpoisoned};
use forerun_vfs::{Error, FileType, Metadata, NodeId, Result, Timestamp, VolumeInfo};

use alloc::UsedClusters;

const ROOT: u64 = 1;
const NAME_MAX: usize = 255;

pub struct MemVolume {
    device: Arc<dyn BlockDevice>,
    state: Mutex<MemVolumeState>,
    cluster: u64,
    info: VolumeInfo,
    syncs: AtomicU64,
}

struct MemVolumeState {
    nodes: HashMap<u64, MemNode>,
    next: u64,
    clusters: UsedClusters,
    label: Vec<u8>,
    dirty: bool,
    broken: bool,
    abandoned: bool,
}

struct MemNode {
    metadata: Metadata,
    accessed: Timestamp,
    created: Timestamp,
    /// Bytes that were written; the rest of the length reads as zeros.
    valid: u64,
    clusters: Vec<u64>,
    /// Directory entries by cookie, so that a listing can continue at its cookie even if entries
    /// are removed.
    entries: BTreeMap<u64, (Vec<u8>, u64)>,
    next_cookie: u64,
    parent: u64,
    linked: bool,
    uses: u32,
}

impl MemVolume {
    /// Creates a volume on `device`, all of which is clusters of `cluster` bytes.
    pub fn new(device: Arc<dyn BlockDevice>, cluster: u64) -> Self {
        let mut root = MemNode::new(FileType::Directory, 0o755, Timestamp::default());
        root.parent = ROOT;
        let count = device.len() / cluster;
        let block = u32::try_from(cluster).unwrap_or(u32::MAX);
        let mut info = VolumeInfo::new("memvolume", device.len(), block);
        info.has_owners = false;
        Self {
            device,
            state: Mutex::new(MemVolumeState {
                nodes: HashMap::from([(ROOT, root)]),
                next: ROOT + 1,
                clusters: UsedClusters::new(count),
                label: Vec::new(),
                dirty: false,
                broken: false,
                abandoned: false,
            }),
            cluster,
            info,
            syncs: AtomicU64::new(0),
        }
    }

    /// Creates a volume in memory, filled with bytes that no file may ever show.
    pub fn in_memory(len: usize, cluster: u64) -> Self {
        Self::new(Arc::new(MemoryDevice::new(vec![0xee; len])), cluster)
    }

    /// Treats names that differ only in the case of ASCII letters as equal.
    pub const fn folding_case(mut self) -> Self {
        self.info.folds_case = true;
        self
    }

    pub fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.device)
    }

    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Returns whether anything was changed since the last `sync_all`.
    pub fn is_dirty(&self) -> bool {
        self.state().dirty
    }

    /// Refuses every change from now on, as after a device failure.
    pub fn break_down(&self) {
        self.state().broken = true;
    }

    /// Counts the nodes in memory: those with a name, and those in use.
    pub fn nodes(&self) -> usize {
        self.state().nodes.len()
    }

    fn state(&self) -> MutexGuard<'_, MemVolumeState> {
        self.state.lock().unpoisoned()
    }

    fn same(&self, one: &[u8], other: &[u8]) -> bool {
        if self.info.folds_case {
            one.eq_ignore_ascii_case(other)
        } else {
            one == other
        }
    }
}

impl MemNode {
    fn new(kind: FileType, mode: u16, time: Timestamp) -> Self {
        Self {
            metadata: Metadata {
                kind,
                mode,
                uid: 0,
                gid: 0,
                size: 0,
                nlink: 1,
                mtime: time,
                device: forerun_vfs::Device::default(),
            },
            accessed: time,
            created: time,
            valid: 0,
            clusters: Vec::new(),
            entries: BTreeMap::new(),
            next_cookie: 1,
            parent: 0,
            linked: true,
            uses: 0,
        }
    }

    const fn is_dir(&self) -> bool {
        matches!(self.metadata.kind, FileType::Directory)
    }
}

impl MemVolumeState {
    fn node(&self, id: NodeId) -> Result<&MemNode> {
        self.nodes.get(&id.0).ok_or(Error::StaleNode(id))
    }

    fn node_mut(&mut self, id: NodeId) -> Result<&mut MemNode> {
        self.nodes.get_mut(&id.0).ok_or(Error::StaleNode(id))
    }

    fn dir(&self, id: NodeId) -> Result<&MemNode> {
        let node = self.node(id)?;
        if node.is_dir() {
            Ok(node)
        } else {
            Err(Error::NotADirectory)
        }
    }

    fn file(&self, id: NodeId) -> Result<&MemNode> {
        let node = self.node(id)?;
        if node.is_dir() {
            Err(Error::IsADirectory)
        } else {
            Ok(node)
        }
    }
}
