//! Exclusive access to the volume and its current state. One thread holds the session at a time.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use forerun_vfs::{BlobId, Error, Extent, FileType, NodeId, Place as Where, Result};

use crate::chain::Chain;
use crate::change::Pending;
use crate::clusters;
use crate::dir::{self, Found, Slots};
use crate::entry_set::EntrySet;
use crate::error::Check;
use crate::index::Index;
use crate::name;
use crate::nodes::{Nodes, ROOT};
use crate::ondisk::ENTRY_LEN;
use crate::place::Place;
use crate::store::Store;
use crate::volume::Volume;

/// Maximum number of runs of all cached chains together (12 MiB). Each chain counts as four more
/// runs.
const CHAIN_RUNS: usize = 1 << 20;
/// Maximum number of entries per step of a listing.
const LISTED: usize = 1024;

/// Maximum number of runs whose extents are returned at once.
const PIECES: usize = 4096;

/// The current state of the volume.
#[derive(Default)]
pub struct State {
    pub nodes: Nodes,
    /// Clusters of files and directories. Chains with more clusters than their entry says are pinned.
    chains: HashMap<NodeId, Known>,
    chain_runs: usize,
    indexes: HashMap<NodeId, (Index, u64)>,
    clock: u64,
    pub pending: Pending,
    /// The result of the volume check per directory: the error for an entry beyond the end, if
    /// there is one.
    pub behind_ends: HashMap<NodeId, Option<Error>>,
}

struct Known {
    chain: Arc<Chain>,
    pinned: bool,
}

pub struct Session<'a> {
    pub volume: &'a Volume,
    pub state: &'a mut State,
    pub store: Option<&'a Store>,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub id: NodeId,
    pub set: EntrySet,
    /// Location of the set; `None` after the last name is removed.
    pub place: Option<Place>,
}

impl Node {
    /// Returns the offset of the set, for errors.
    pub fn at(&self) -> u64 {
        self.place.map_or(0, |place| place.offset)
    }

    /// Fails with `Unsupported` for a set with a critical entry of unknown type, which the driver
    /// must not read or change.
    pub fn recognized(&self) -> Result<()> {
        match self.set.unrecognized() {
            Some(found) => Err(Error::Unsupported(format!(
                "a file with a critical entry of unknown type {found:#04x}"
            ))),
            None => Ok(()),
        }
    }
}

pub struct Listed {
    pub name: Vec<u8>,
    pub node: NodeId,
    pub kind: FileType,
    pub next: u64,
}

pub struct FoundName {
    pub node: Node,
    pub slot: u32,
}

impl Session<'_> {
    /// Loads a node other than the root.
    pub fn load(&self, id: NodeId) -> Result<Node> {
        if let Some(set) = self.state.pending.orphan(id) {
            let set = set.clone();
            return Ok(Node {
                id,
                set,
                place: None,
            });
        }
        let place = self.state.nodes.place(id).ok_or(Error::StaleNode(id))?;
        let set = dir::read_set(self.volume, id, place)?;
        Ok(Node {
            id,
            set,
            place: Some(place),
        })
    }

    /// Returns the clusters of a node.
    pub fn chain(&mut self, id: NodeId) -> Result<Arc<Chain>> {
        if let Some(known) = self.state.chains.get(&id) {
            return Ok(Arc::clone(&known.chain));
        }
        let chain = match id {
            ROOT => clusters::root_chain(self.volume)?,
            _ => {
                let node = self.load(id)?;
                let data = node.set.data();
                let is_directory = node.set.file_type() == FileType::Directory;
                if is_directory && self.store.is_none() {
                    // Linux reads a directory to its last entry, whatever its length.
                    clusters::directory_chain(self.volume, Some(id), node.at(), data)?
                } else if is_directory && let Some(check) = data.unused() {
                    // The length leaves out clusters with entries.
                    return Err(check.at(Some(id), node.at()));
                } else {
                    clusters::chain(self.volume, Some(id), node.at(), data)?
                }
            }
        };
        let chain = Arc::new(chain);
        self.keep_chain(id, Arc::clone(&chain), false);
        Ok(chain)
    }

    /// Caches the clusters of a node. `pinned` means that there are more than its set says.
    pub fn keep_chain(&mut self, id: NodeId, chain: Arc<Chain>, pinned: bool) {
        self.drop_chain(id);
        let runs = weight(&chain);
        if self.state.chain_runs + runs > CHAIN_RUNS {
            let left = &mut self.state.chain_runs;
            self.state.chains.retain(|_, known| {
                if !known.pinned {
                    *left -= weight(&known.chain);
                }
                known.pinned
            });
        }
        self.state.chain_runs += runs;
        self.state.chains.insert(id, Known { chain, pinned });
    }

    pub fn drop_chain(&mut self, id: NodeId) {
        if let Some(known) = self.state.chains.remove(&id) {
            self.state.chain_runs -= weight(&known.chain);
        }
    }

    /// Returns whether a node has more clusters than its set says.
    pub fn is_ahead(&self, id: NodeId) -> bool {
        self.state.chains.get(&id).is_some_and(|known| known.pinned)
    }

    /// Returns the clusters of a directory; fails with `NotADirectory` for another node.
    pub fn directory(&mut self, id: NodeId) -> Result<Arc<Chain>> {
        if id != ROOT {
            let node = self.load(id)?;
            if node.set.file_type() != FileType::Directory {
                return Err(Error::NotADirectory);
            }
        }
        self.chain(id)
    }

    /// Returns the number of slots per sector, which is written completely or not at all.
    pub fn per_sector(&self) -> u32 {
        let sector = self.volume.boot.sector_size();
        let device = self.store.map_or(sector, Store::sector_size);
        u32::try_from(sector.min(device) / ENTRY_LEN).unwrap_or(16)
    }

    /// Returns the index of a directory, and builds it if necessary.
    pub fn index(&mut self, dir: NodeId) -> Result<&mut Index> {
        self.state.clock += 1;
        if !self.state.indexes.contains_key(&dir) {
            let chain = self.directory(dir)?;
            let mut slots = Slots::new(self.volume, &chain, Some(dir));
            let (count, per_sector) = (self.volume.slots(&chain), self.per_sector());
            let mut index = Index::build(self.volume, &mut slots, count, per_sector)?;
            for &(of, slot, count) in &self.state.pending.late_slots {
                if of == dir {
                    index.take(slot, count);
                }
            }
            let stranded = std::mem::take(&mut index.stranded);
            let departed = std::mem::take(&mut index.departed);
            let strays = std::mem::take(&mut index.strays);
            let behind_end = std::mem::take(&mut index.behind_end);
            self.make_room(index.weight());
            self.state.indexes.insert(dir, (index, self.state.clock));
            self.end_moves(dir, &stranded, &departed)?;
            self.clear_strays(dir, &strays)?;
            self.clear_behind_end(dir, behind_end)?;
        }
        let entry = self.state.indexes.get_mut(&dir);
        let (index, used) = entry.ok_or(Error::StaleNode(dir))?;
        *used = self.state.clock;
        Ok(index)
    }

    /// Returns the index of a directory, if it was built.
    pub fn known_index(&mut self, dir: NodeId) -> Option<&mut Index> {
        self.state.indexes.get_mut(&dir).map(|(index, _)| index)
    }

    pub fn drop_index(&mut self, dir: NodeId) {
        self.state.indexes.remove(&dir);
    }

    /// Drops the least recently used indexes until `weight` fits the budget. One index may exceed it.
    fn make_room(&mut self, weight: usize) {
        let indexes = &mut self.state.indexes;
        let budget = self.volume.limits.dir_index_bytes;
        let mut all = indexes
            .values()
            .map(|(index, _)| index.weight())
            .sum::<usize>();
        while all + weight > budget {
            let oldest = indexes.iter().min_by_key(|(_, (_, used))| *used);
            let Some((&dir, (index, _))) = oldest else {
                return;
            };
            all -= index.weight();
            indexes.remove(&dir);
        }
    }

    /// Finds a name. Prefers an exact match to one that differs in case.
    pub fn find(&mut self, dir: NodeId, name: &[u8]) -> Result<Option<FoundName>> {
        let keeps_dots = self.store.is_some_and(|store| store.keep_last_dots);
        let Some(units) = name::to_units(name) else {
            self.directory(dir)?;
            return Ok(None);
        };
        if let Some(found) = self.find_units(dir, &units)? {
            return Ok(Some(found));
        }
        let dots = units.iter().rev().take_while(|&&unit| unit == 0x2E).count();
        let kept = &units[..units.len() - dots];
        if dots == 0 || kept.is_empty() || keeps_dots {
            Ok(None)
        } else {
            self.find_units(dir, kept)
        }
    }

    fn find_units(&mut self, dir: NodeId, units: &[u16]) -> Result<Option<FoundName>> {
        let key = self.volume.name_key(units);
        let candidates: Vec<u32> = self.index(dir)?.candidates(key).collect();
        if candidates.is_empty() {
            return Ok(None);
        }
        let chain = self.chain(dir)?;
        let mut slots = Slots::new(self.volume, &chain, Some(dir));
        let mut first = None;
        for slot in candidates {
            let Some((Found::Set(set) | Found::Stranded(set), _)) = slots.next_item(slot)? else {
                continue;
            };
            let name = set.name();
            if !self.volume.upcase.same(&name, units) || set.visible_name().is_err() {
                continue;
            }
            // Other systems can create names that differ only in case. Each must be reachable.
            if name == units {
                first = Some((slot, set));
                break;
            }
            first.get_or_insert((slot, set));
        }
        let Some((slot, set)) = first else {
            return Ok(None);
        };
        let place = slots.place(slot, set.entries());
        let place = place.ok_or(Error::StaleNode(dir))?;
        let id = self.note(dir, place, &set);
        let place = Some(place);
        let node = Node { id, set, place };
        Ok(Some(FoundName { node, slot }))
    }

    /// Returns the node at a location. Records its directory if changes need it.
    fn note(&mut self, dir: NodeId, place: Place, set: &EntrySet) -> NodeId {
        let id = self.state.nodes.at(place);
        self.state.pending.forgotten.remove(&id);
        if self.store.is_some() && (set.file_type() == FileType::Directory || self.is_split(place))
        {
            self.state.nodes.set_parent(id, dir);
        }
        id
    }

    /// Returns whether file entry and stream extension of a set are in different sectors.
    pub fn is_split(&self, place: Place) -> bool {
        let sector = u64::from(self.per_sector()) * ENTRY_LEN;
        place.offset % sector == sector - ENTRY_LEN
    }

    /// Adds some entries of a directory from slot `from` on to `out`. Skips damaged entries, and
    /// returns the first damage.
    pub fn list(&mut self, dir: NodeId, from: u64, out: &mut Vec<Listed>) -> Result<Option<Error>> {
        let chain = self.directory(dir)?;
        if self.volume.recovers && self.writable().is_ok() {
            // Completes moves and removals that a power cut interrupted.
            self.index(dir)?;
        }
        let mut slots = Slots::new(self.volume, &chain, Some(dir));
        let Ok(mut slot) = u32::try_from(from) else {
            return Ok(None);
        };
        let mut damaged = None;
        while out.len() < LISTED {
            let Some((found, next)) = slots.next_item(slot)? else {
                break;
            };
            let mut damage = |check| {
                damaged.get_or_insert_with(|| slots.error(check, slot));
            };
            match found {
                Found::Set(set) | Found::Stranded(set) => {
                    match (set.visible_name(), slots.place(slot, set.entries())) {
                        (Ok(name), Some(place)) => out.push(Listed {
                            name,
                            node: self.note(dir, place, &set),
                            kind: set.file_type(),
                            next: next.into(),
                        }),
                        (Err(check), _) => damage(check),
                        (_, None) => {}
                    }
                }
                // A stray entry hides no name, and the cursor may be inside of a set.
                Found::Damaged(Check::Stray { .. })
                | Found::Free
                | Found::Departed
                | Found::Benign { .. }
                | Found::Other { .. } => {}
                Found::Damaged(check) => damage(check),
            }
            slot = next;
        }
        if self.volume.rescue && Self::is_whole_step(out.len()) && damaged.is_none() {
            damaged = self.missing_end(dir, &chain)?;
        }
        Ok(damaged)
    }

    /// In rescue mode, returns the damage of a directory with fewer clusters than its length needs.
    fn missing_end(&self, dir: NodeId, chain: &Chain) -> Result<Option<Error>> {
        if dir == ROOT {
            // Reported when the volume was opened.
            return Ok(None);
        }
        let node = self.load(dir)?;
        let need = self.volume.boot.clusters_for(node.set.data().len);
        let found = u64::from(chain.clusters());
        let is_short = found < need;
        Ok(is_short.then(|| Check::ChainShort { found, need }.at(Some(dir), node.at())))
    }

    /// Returns whether a listing step with `listed` entries reached the end of the directory.
    pub const fn is_whole_step(listed: usize) -> bool {
        listed < LISTED
    }

    /// Returns the first extents of a file within `range`; none for an empty range.
    pub fn extents(&mut self, id: NodeId, range: Range<u64>) -> Result<Vec<Extent>> {
        if id == ROOT {
            return Err(Error::IsADirectory);
        }
        let node = self.load(id)?;
        if node.set.file_type() == FileType::Directory {
            return Err(Error::IsADirectory);
        }
        node.recognized()?;
        let (len, valid) = (node.set.data().len, node.set.valid_len());
        let chain = self.chain(id)?;
        let (start, end) = (range.start, range.end.min(len));
        let mut extents = Vec::new();
        if start < end.min(valid) {
            let far = pieces_end(self.volume, &chain, start).min(end).min(valid);
            stored(self.volume, &chain, start..far, &mut extents);
        }
        let covered = extents.last().map_or(start, |extent| extent.logical.end);
        if self.volume.rescue && covered == start && start < end.min(valid) {
            let (found, need) = (chain.clusters().into(), self.volume.boot.clusters_for(len));
            return Err(Check::ChainShort { found, need }.at(Some(id), node.at()));
        }
        let zeros = covered.max(valid)..end;
        if zeros.start < zeros.end && (covered >= valid || start >= valid) {
            extents.push(Extent {
                logical: zeros,
                place: Where::Zero,
            });
        }
        Ok(extents)
    }
}

/// Returns the weight of a chain in runs. A chain without runs takes memory too.
fn weight(chain: &Chain) -> usize {
    chain.runs().len() + 4
}

/// Returns the offset that `PIECES` runs from `start` reach.
fn pieces_end(volume: &Volume, chain: &Chain, start: u64) -> u64 {
    let index = u32::try_from(start >> volume.boot.cluster_bits).unwrap_or(u32::MAX);
    let after = chain.runs().partition_point(|run| run.index <= index);
    let run = chain.runs().get(after + PIECES);
    run.map_or(u64::MAX, |run| {
        u64::from(run.index) << volume.boot.cluster_bits
    })
}

/// Adds the extents of `range` of a file with these clusters.
pub fn stored(volume: &Volume, chain: &Chain, range: Range<u64>, extents: &mut Vec<Extent>) {
    let mut at = range.start;
    for (offset, len) in volume.pieces(chain, range.start, range.end - range.start) {
        extents.push(Extent {
            logical: at..at + len,
            place: Where::Stored {
                blob: BlobId::IMAGE,
                offset,
            },
        });
        at += len;
    }
}
