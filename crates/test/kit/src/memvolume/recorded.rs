//! A [`MemVolume`] that survives power cuts, unless it is told to make a mistake.
//!
//! All metadata is one record. A commit writes it to the older of two slots, after the data is durable;
//! the newer whole record is the volume. Contents are overwritten in place, and freed clusters are not
//! reused before the commit that frees them.

use std::sync::Arc;

use forerun_io::{BlockDevice, ReadAt, u64_from, usize_from};
use forerun_vfs::{Error, FileType, NodeId, Result, Timestamp};
use libdeflater::crc32;
use serde::{Deserialize, Serialize};

use super::{MemNode, MemVolume, MemVolumeState, ROOT};
use crate::powercut::SECTOR;

/// Bytes of a cluster.
pub const CLUSTER: u64 = 512;
const SLOT: u64 = 32 << 10;
/// Length of the record's body.
const HEAD: usize = 4;

/// A mistake that the driver makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    None,
    /// The record may be durable before the data it shows.
    NoFlushBeforeCommit,
    /// `sync` returns before the record is durable.
    NoFlushAfterCommit,
    /// The record is overwritten where it is.
    OneSlot,
    /// A rename is two commits: the old name goes, then the new one comes.
    RenameInTwoSteps,
    /// As before, the other way round.
    RenameDoubles,
    /// Freed clusters are given out at once.
    ReusesFreed,
    /// Bytes between the end and a later write are left as they were on the device.
    ForgetsGap,
    /// Nothing is ever committed but by `sync_all`.
    SyncDoesNothing,
    /// `dirsync` is ignored.
    IgnoresDirsync,
}

/// How a volume keeps its record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keeping {
    pub dirsync: bool,
    pub mistake: Mistake,
}

#[derive(Default, Serialize, Deserialize)]
struct Record {
    generation: u64,
    next: u64,
    /// Below the root, each after the directory that it is in.
    nodes: Vec<RecordNode>,
}

#[derive(Serialize, Deserialize)]
struct RecordNode {
    id: u64,
    parent: u64,
    name: Vec<u8>,
    is_dir: bool,
    size: u64,
    valid: u64,
    clusters: Vec<u64>,
}

/// Creates an empty volume: no record at all, and foreign bytes everywhere else.
pub fn format(len: usize) -> Vec<u8> {
    let mut bytes = vec![0xF0; len];
    bytes[..usize_from(2 * SLOT)].fill(0);
    bytes
}

/// Checks that a whole record is there, which is all that can be said without the driver.
pub fn check(device: &dyn ReadAt) -> std::result::Result<(), String> {
    newest(device)
        .map(|_| ())
        .ok_or("no whole record".to_owned())
}

fn newest(device: &dyn ReadAt) -> Option<Record> {
    let slots = [0, SLOT].map(|at| read_slot(device, at));
    slots
        .into_iter()
        .flatten()
        .max_by_key(|record| record.generation)
}

fn read_slot(device: &dyn ReadAt, at: u64) -> Option<Record> {
    let mut slot = vec![0; usize_from(SLOT)];
    device.read_exact_at(at, &mut slot).ok()?;
    let number = |at: usize| Some(u32::from_le_bytes(*slot.get(at..)?.first_chunk()?));
    let len = usize_from(number(0)?.into());
    if len == 0 {
        // A volume that was never written.
        return slot.iter().all(|&byte| byte == 0).then(Record::default);
    }
    let body = slot.get(HEAD..HEAD + len)?;
    let sum = number((HEAD + len).next_multiple_of(SECTOR))?;
    (crc32(body) == sum).then(|| postcard::from_bytes(body).unwrap())
}

impl MemVolume {
    /// Opens a volume that [`format()`] made, or another driver of this kind left.
    pub fn recorded(device: Arc<dyn BlockDevice>, dirsync: bool, mistake: Mistake) -> Result<Self> {
        let broken = || Error::Unsupported("no whole record".into());
        let record = newest(&*device).ok_or_else(broken)?;
        let mut volume = Self::new(device, CLUSTER);
        volume.keeping = Some(Keeping { dirsync, mistake });
        let state = volume.state.get_mut().unwrap();
        state.clusters.delays_reuse = mistake != Mistake::ReusesFreed;
        state.clusters.take(0..2 * SLOT / CLUSTER);
        state.generation = record.generation;
        state.next = record.next.max(state.next);
        for node in record.nodes {
            let kind = if node.is_dir {
                FileType::Directory
            } else {
                FileType::Regular
            };
            let mut made = MemNode::new(kind, 0o755, Timestamp::default());
            made.metadata.size = node.size;
            made.valid = node.valid;
            for &cluster in &node.clusters {
                state.clusters.take(cluster..cluster + 1);
            }
            made.clusters = node.clusters;
            state.nodes.insert(node.id, made);
            state.link(NodeId(node.parent), &node.name, node.id)?;
        }
        Ok(volume)
    }

    /// Commits where a change of names is durable when it returns.
    pub(super) fn commit_name(&self, state: &mut MemVolumeState) -> Result<()> {
        match self.keeping {
            Some(keeping) if keeping.dirsync && keeping.mistake != Mistake::IgnoresDirsync => {
                self.commit(state)
            }
            _ => Ok(()),
        }
    }

    /// Writes the record, if there is one to keep.
    pub(super) fn commit(&self, state: &mut MemVolumeState) -> Result<()> {
        let Some(Keeping { mistake, .. }) = self.keeping else {
            return Ok(());
        };
        if state.abandoned {
            return Err(Error::ReadOnly("a thread panicked".into()));
        }
        if mistake != Mistake::NoFlushBeforeCommit {
            self.flush()?;
        }
        state.generation += 1;
        let slot = match mistake {
            Mistake::OneSlot => SLOT,
            _ => state.generation % 2 * SLOT,
        };
        let bytes = state.record();
        self.device
            .write_all_at(slot, &bytes)
            .map_err(|error| Error::write(slot, bytes.len(), error))?;
        state.clusters.reuse_freed();
        if mistake != Mistake::NoFlushAfterCommit {
            self.flush()?;
        }
        Ok(())
    }

    pub(super) fn makes(&self, mistake: Mistake) -> bool {
        self.keeping
            .is_some_and(|keeping| keeping.mistake == mistake)
    }

    fn flush(&self) -> Result<()> {
        self.device
            .flush()
            .map_err(|error| Error::write(0, 0, error))
    }
}

impl MemVolumeState {
    /// Returns the sectors of the record.
    fn record(&self) -> Vec<u8> {
        let mut record = Record {
            generation: self.generation,
            next: self.next,
            nodes: Vec::new(),
        };
        let mut dirs = vec![ROOT];
        while let Some(dir) = dirs.pop() {
            for (name, id) in self.nodes[&dir].entries.values() {
                let node = &self.nodes[id];
                record.nodes.push(RecordNode {
                    id: *id,
                    parent: dir,
                    name: name.clone(),
                    is_dir: node.is_dir(),
                    size: node.metadata.size,
                    valid: node.valid,
                    clusters: node.clusters.clone(),
                });
                dirs.extend(node.is_dir().then_some(*id));
            }
        }
        let body = postcard::to_allocvec(&record).unwrap();
        let len = u32::try_from(body.len()).unwrap();
        let mut bytes = [&len.to_le_bytes()[..], &body].concat();
        // The checksum is in a sector of its own, so that a torn record is always noticed.
        bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
        bytes.extend(crc32(&body).to_le_bytes());
        bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
        assert!(u64_from(bytes.len()) <= SLOT);
        bytes
    }
}
