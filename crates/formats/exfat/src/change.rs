//! State of a volume that is being changed, in addition to the state that reading needs.

use std::collections::{HashMap, HashSet};

use forerun_vfs::{Error, NodeId};

use crate::alloc::{Bitmap, Runs};
use crate::entry_set::EntrySet;
use crate::place::Place;

/// A reason to refuse further changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The device failed. Nothing is written any more.
    Failed,
    /// The driver met damage. Earlier changes are still written.
    Damaged,
    /// A thread panicked. The state in memory may be wrong, so nothing is written any more.
    Panicked,
}

impl Stopped {
    pub fn error(self) -> Error {
        Error::ReadOnly(
            match self {
                Self::Failed => "the device failed",
                Self::Damaged => "its metadata is damaged",
                Self::Panicked => {
                    "a thread panicked in a change of the volume; nothing more is written"
                }
            }
            .into(),
        )
    }
}

/// An entry set that moves to another sector.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    pub dir: NodeId,
    pub from: Place,
    pub to: Place,
}

#[derive(Default)]
pub struct Pending {
    pub stopped: Option<Stopped>,
    /// `VolumeFlags` as on the device.
    pub flags: u16,
    /// `VolumeDirty` was set when the volume was opened, and stays set.
    pub was_dirty: bool,
    /// Metadata has been changed since the last commit.
    pub touched: bool,
    pub bitmap: Bitmap,
    /// Clusters that become free when no entry on the device refers to them.
    pub frees: Runs,
    /// Clusters that were allocated since the last commit and are not linked. Nothing on the device
    /// refers to them. An entry set that names them is replaced by another one in the same sector
    /// and step before it reaches the device. So these clusters can be freed at once.
    pub fresh: Runs,
    /// Clusters that become the end of their chain when no entry on the device refers to a later
    /// cluster of the chain.
    pub cuts: HashSet<u32>,
    /// Nodes whose chain on the device must not change until the next commit.
    pub cut_nodes: HashSet<NodeId>,
    /// Slots that become free with the next commit: directory, first slot, count.
    pub late_slots: Vec<(NodeId, u32, u32)>,
    /// Entry sets that move to another sector.
    pub moves: Vec<Move>,
    opens: HashMap<NodeId, u32>,
    orphans: HashMap<NodeId, EntrySet>,
    /// Nodes with more clusters than their length needs.
    pub ahead: HashSet<NodeId>,
    /// Ids that the caller has forgotten, but that pending changes still use.
    pub forgotten: HashSet<NodeId>,
}

impl Pending {
    pub fn orphan(&self, id: NodeId) -> Option<&EntrySet> {
        self.orphans.get(&id)
    }

    pub fn keep_orphan(&mut self, id: NodeId, set: EntrySet) {
        self.orphans.insert(id, set);
    }

    pub fn take_orphan(&mut self, id: NodeId) -> Option<EntrySet> {
        self.orphans.remove(&id)
    }

    /// Returns the open nodes without a name, and the allocations of their data.
    pub fn known_orphans(&self) -> Vec<(NodeId, crate::entry_set::Allocation)> {
        let orphans = self.orphans.iter();
        orphans.map(|(id, set)| (*id, set.data())).collect()
    }

    /// Ends all uses of nodes, and returns the nodes whose clusters can now be freed.
    pub fn end_uses(&mut self) -> Vec<NodeId> {
        self.opens.clear();
        let with_spare = self.orphans.keys().chain(&self.ahead);
        with_spare.copied().collect()
    }

    pub fn is_open(&self, id: NodeId) -> bool {
        self.opens.contains_key(&id)
    }

    pub fn open(&mut self, id: NodeId) {
        *self.opens.entry(id).or_default() += 1;
    }

    /// Ends one use, and returns whether it was the last one.
    pub fn release(&mut self, id: NodeId) -> bool {
        match self.opens.get_mut(&id) {
            Some(count) if *count > 1 => {
                *count -= 1;
                false
            }
            Some(_) => {
                self.opens.remove(&id);
                true
            }
            None => false,
        }
    }

    /// Returns whether a pending move writes an entry set to `place`.
    pub fn arrives(&self, place: Place) -> bool {
        self.moves
            .iter()
            .any(|moved| moved.to.offset == place.offset)
    }

    /// Returns whether a pending move removes the entry set at `place`.
    pub fn departs(&self, place: Place) -> bool {
        let mut moves = self.moves.iter();
        moves.any(|moved| moved.from.offset == place.offset)
    }

    /// Returns whether pending changes use the id of a node.
    pub fn goes_by(&self, id: NodeId) -> bool {
        self.cut_nodes.contains(&id)
            || self.ahead.contains(&id)
            || self.late_slots.iter().any(|late| late.0 == id)
            || self.moves.iter().any(|moved| moved.dir == id)
    }

    /// Returns whether every cluster in use will belong to an entry when all changes are written.
    pub fn is_settled(&self) -> bool {
        self.orphans.is_empty() && self.ahead.is_empty()
    }
}
