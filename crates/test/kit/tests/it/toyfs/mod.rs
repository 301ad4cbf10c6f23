//! A volume that survives power cuts, unless it is told to make a mistake.
//!
//! All metadata is one record. A commit writes it to the older of two slots, after the data is durable;
//! the newer whole record is the volume. Contents are overwritten in place, and freed space is not reused
//! before the commit that frees it.

mod driver;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use forerun_io::BlockDevice;
use forerun_vfs::{Error, Result};

pub const CLUSTER: u64 = 512;
const SLOT: u64 = 32 << 10;
const DATA: u64 = 2 * SLOT;

/// A mistake that the driver makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Nothing.
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

#[derive(Clone, Debug)]
struct Node {
    parent: u64,
    name: Vec<u8>,
    directory: bool,
    len: u64,
    valid: u64,
    clusters: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct State {
    generation: u64,
    next: u64,
    nodes: BTreeMap<u64, Node>,
    /// Freed since the last commit.
    freed: Vec<u32>,
}

pub struct ToyFs {
    device: Arc<dyn BlockDevice>,
    mistake: Mistake,
    dirsync: bool,
    abandoned: AtomicBool,
    state: Mutex<State>,
}

/// Creates an empty volume: no record at all, and foreign bytes everywhere else.
pub fn format(len: usize) -> Vec<u8> {
    let mut bytes = vec![0xF0; len];
    bytes[..DATA as usize].fill(0);
    bytes
}

/// Checks that a whole record is there, which is all that can be said without the driver.
pub fn check(device: &dyn forerun_io::ReadAt) -> std::result::Result<(), String> {
    newest(device)
        .map(|_| ())
        .ok_or("no whole record".to_owned())
}

impl ToyFs {
    pub fn open(device: Arc<dyn BlockDevice>, dirsync: bool, mistake: Mistake) -> Result<Self> {
        let broken = || Error::Unsupported("no whole record".into());
        let state = newest(&*device).ok_or_else(broken)?;
        Ok(Self {
            device,
            mistake,
            dirsync,
            abandoned: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn flush(&self) -> Result<()> {
        self.device
            .flush()
            .map_err(|error| Error::write(0, 0, error))
    }

    fn commit(&self, state: &mut State) -> Result<()> {
        if self.abandoned.load(Ordering::Acquire) {
            return Err(Error::ReadOnly("a thread panicked".into()));
        }
        if self.mistake != Mistake::NoFlushBeforeCommit {
            self.flush()?;
        }
        state.generation += 1;
        let slot = match self.mistake {
            Mistake::OneSlot => 1,
            _ => state.generation % 2,
        };
        let record = state.record();
        assert!(record.len() as u64 <= SLOT);
        let sectors = record.len().next_multiple_of(512);
        let mut bytes = record;
        bytes.resize(sectors, 0);
        self.device
            .write_all_at(slot * SLOT, &bytes)
            .map_err(|error| Error::write(slot * SLOT, bytes.len(), error))?;
        state.freed.clear();
        if self.mistake != Mistake::NoFlushAfterCommit {
            self.flush()?;
        }
        Ok(())
    }

    fn commit_name(&self, state: &mut State) -> Result<()> {
        if self.dirsync && self.mistake != Mistake::IgnoresDirsync {
            self.commit(state)?;
        }
        Ok(())
    }

    /// Makes `node` at least so long in clusters.
    fn grow(&self, state: &mut State, node: u64, len: u64) -> Result<()> {
        let total = (self.device.len() - DATA) / CLUSTER;
        let has = state.nodes[&node].clusters.len() as u64;
        let mut used: std::collections::BTreeSet<u32> = state
            .nodes
            .values()
            .flat_map(|node| node.clusters.iter().copied())
            .collect();
        if self.mistake != Mistake::ReusesFreed {
            used.extend(&state.freed);
        }
        let wanted = len.div_ceil(CLUSTER).saturating_sub(has) as usize;
        let free = (0..total as u32).filter(|number| !used.contains(number));
        let new: Vec<u32> = free.take(wanted).collect();
        if new.len() < wanted {
            return Err(Error::NoSpace);
        }
        state.node(node)?.clusters.extend(new);
        Ok(())
    }
}

impl State {
    fn node(&mut self, id: u64) -> Result<&mut Node> {
        let stale = Error::StaleNode(forerun_vfs::NodeId(id));
        self.nodes.get_mut(&id).ok_or(stale)
    }

    fn remove(&mut self, id: u64) {
        if let Some(node) = self.nodes.remove(&id) {
            self.freed.extend(node.clusters);
        }
    }

    fn record(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for number in [self.generation, self.next, self.nodes.len() as u64] {
            body.extend(number.to_le_bytes());
        }
        for (id, node) in &self.nodes {
            let numbers = [
                *id,
                node.parent,
                node.directory.into(),
                node.len,
                node.valid,
                node.name.len() as u64,
                node.clusters.len() as u64,
            ];
            body.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            body.extend(&node.name);
            body.extend(node.clusters.iter().flat_map(|number| number.to_le_bytes()));
        }
        let mut record = (body.len() as u64).to_le_bytes().to_vec();
        record.extend(sum(&body).to_le_bytes());
        record.extend(body);
        record
    }
}

fn sum(bytes: &[u8]) -> u64 {
    let mix = |sum: u64, &byte: &u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, mix)
}

fn newest(device: &dyn forerun_io::ReadAt) -> Option<State> {
    let slots = [0, 1].map(|slot| read_slot(device, slot * SLOT));
    slots
        .into_iter()
        .flatten()
        .max_by_key(|state| state.generation)
}

fn read_slot(device: &dyn forerun_io::ReadAt, at: u64) -> Option<State> {
    let mut slot = vec![0; SLOT as usize];
    device.read_exact_at(at, &mut slot).ok()?;
    let number = |at: usize| Some(u64::from_le_bytes(slot.get(at..at + 8)?.try_into().ok()?));
    let len = number(0)? as usize;
    if len == 0 {
        // A volume that was never written.
        return slot.iter().all(|&byte| byte == 0).then(|| State {
            next: 1,
            ..State::default()
        });
    }
    let body = slot.get(16..16 + len)?;
    if sum(body) != number(8)? {
        return None;
    }
    let mut state = State {
        generation: number(16)?,
        next: number(24)?,
        ..State::default()
    };
    let mut at = 40;
    for _ in 0..number(32)? {
        let field = |index: usize| number(at + index * 8);
        let names = at + 56;
        let clusters = names + field(5)? as usize;
        let end = clusters + field(6)? as usize * 4;
        let numbers = slot[clusters..end].chunks_exact(4);
        let node = Node {
            parent: field(1)?,
            directory: field(2)? == 1,
            len: field(3)?,
            valid: field(4)?,
            name: slot[names..clusters].to_vec(),
            clusters: numbers
                .map(|n| u32::from_le_bytes(n.try_into().unwrap()))
                .collect(),
        };
        state.nodes.insert(field(0)?, node);
        at = end;
    }
    Some(state)
}
