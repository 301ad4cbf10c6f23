//! State of a volume that is being changed, beyond the state that reading it needs.

use std::collections::{HashMap, HashSet};

use forerun_vfs::{Error, NodeId};

use crate::alloc::{Bitmap, Runs};
use crate::entry_set::EntrySet;
use crate::place::Place;

/// A reason to refuse further changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The device failed: nothing is written any more.
    Failed,
    /// Damage was met: earlier changes are still written.
    Damaged,
    /// A thread panicked: the state in memory may be wrong, and nothing is written any more.
    Panicked,
}

impl Stopped {
    /// Returns the error for callers.
    pub fn error(self) -> Error {
        Error::ReadOnly(
            match self {
                Self::Failed => "the device failed",
                Self::Damaged => "damage was met in its metadata",
                Self::Panicked => {
                    "a thread panicked while the volume was in use; nothing is written any more"
                }
            }
            .into(),
        )
    }
}

/// A set that moves to another sector.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// The directory that it leaves.
    pub dir: NodeId,
    pub from: Place,
    pub to: Place,
}

/// Changes that are not committed yet.
#[derive(Default)]
pub struct Pending {
    pub stopped: Option<Stopped>,
    /// `VolumeFlags` as they are on the device.
    pub flags: u16,
    /// `VolumeDirty` was set when the volume was opened, and stays.
    pub was_dirty: bool,
    /// Metadata has been changed since the last commit.
    pub touched: bool,
    pub bitmap: Bitmap,
    /// Clusters that become free once no entry on the device refers to them.
    pub frees: Runs,
    /// Clusters that were taken since the last commit and are not linked. Nothing on the device
    /// refers to them. A set that names them is replaced by another one in the same sector and step
    /// before it reaches the device. So they can become free at once.
    pub fresh: Runs,
    /// Clusters that become the last of their chain once no entry leads behind them.
    pub cuts: HashSet<u32>,
    /// Nodes whose chain on the device must stay as it is until the next commit.
    pub cut_nodes: HashSet<NodeId>,
    /// Slots that are free after the next commit: directory, first, number.
    pub late_slots: Vec<(NodeId, u32, u32)>,
    /// Sets that move to another sector.
    pub moves: Vec<Move>,
    opens: HashMap<NodeId, u32>,
    orphans: HashMap<NodeId, EntrySet>,
    /// Nodes with more clusters than their set says.
    pub ahead: HashSet<NodeId>,
    /// Ids that the caller has forgotten, but that pending changes still use.
    pub forgotten: HashSet<NodeId>,
}

impl Pending {
    /// Returns the set of a node that has lost its last name while it is in use.
    pub fn orphan(&self, id: NodeId) -> Option<&EntrySet> {
        self.orphans.get(&id)
    }

    /// Keeps the set of such a node.
    pub fn keep_orphan(&mut self, id: NodeId, set: EntrySet) {
        self.orphans.insert(id, set);
    }

    /// Removes the set of such a node.
    pub fn take_orphan(&mut self, id: NodeId) -> Option<EntrySet> {
        self.orphans.remove(&id)
    }

    /// Returns the nodes without a name, and the places of their data.
    pub fn known_orphans(&self) -> Vec<(NodeId, crate::entry_set::Allocation)> {
        let orphans = self.orphans.iter();
        orphans.map(|(id, set)| (*id, set.data())).collect()
    }

    /// Ends every use, and returns the nodes whose end of use frees clusters.
    pub fn end_uses(&mut self) -> Vec<NodeId> {
        self.opens.clear();
        let with_spare = self.orphans.keys().chain(&self.ahead);
        with_spare.copied().collect()
    }

    /// Returns whether a node is in use.
    pub fn is_open(&self, id: NodeId) -> bool {
        self.opens.contains_key(&id)
    }

    /// Counts one more use.
    pub fn open(&mut self, id: NodeId) {
        *self.opens.entry(id).or_default() += 1;
    }

    /// Counts one use less, and returns whether it was the last.
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

    /// Returns whether the set at `place` is about to arrive there.
    pub fn arrives(&self, place: Place) -> bool {
        self.moves
            .iter()
            .any(|moved| moved.to.offset == place.offset)
    }

    /// Returns whether the set at `place` is about to leave it.
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

    /// Returns whether every cluster that is marked used belongs to an entry, once all is written.
    pub fn is_settled(&self) -> bool {
        self.orphans.is_empty() && self.ahead.is_empty()
    }
}
