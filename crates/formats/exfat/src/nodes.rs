//! Ids of nodes. An id is the location of the entry set when the node was first seen.
//!
//! The tables hold only nodes that have moved since, and nodes at the former location of another.
//! On a volume that is only read, the tables stay empty.

use std::collections::{HashMap, HashSet};

use forerun_vfs::NodeId;

use crate::place::Place;

/// The root directory, which has no entry set.
pub const ROOT: NodeId = NodeId(1);
/// Set in the id of a new node if another node already has the id of its location.
const NUMBERED: u64 = 1 << 63;

/// The nodes whose location differs from their id.
#[derive(Default)]
pub struct Nodes {
    moved: HashMap<NodeId, Place>,
    /// Ids by the position of the file entry.
    at: HashMap<u64, NodeId>,
    /// Ids, derived from locations, whose node is gone.
    gone: HashSet<NodeId>,
    /// The parent directories of directories, and of sets that must move before they change.
    parents: HashMap<NodeId, NodeId>,
    numbered: u64,
}

impl Nodes {
    /// Returns the location of a node; `None` if the node is gone.
    pub fn place(&self, id: NodeId) -> Option<Place> {
        if let Some(place) = self.moved.get(&id) {
            return Some(*place);
        }
        let is_place = id.0 & NUMBERED == 0 && !self.gone.contains(&id);
        Place::of(id).filter(|_| is_place)
    }

    /// Returns the id of the node at a location. A node must be there.
    pub fn at(&self, place: Place) -> NodeId {
        self.at.get(&place.offset).copied().unwrap_or(place.id())
    }

    /// Returns an id for a new node at a location.
    pub fn add(&mut self, place: Place) -> NodeId {
        let id = place.id();
        if !self.gone.contains(&id) && !self.moved.contains_key(&id) {
            return id;
        }
        let id = NodeId(NUMBERED | self.numbered);
        self.numbered += 1;
        self.moved.insert(id, place);
        self.at.insert(place.offset, id);
        id
    }

    pub fn relocate(&mut self, id: NodeId, from: Place, to: Place) {
        self.at.remove(&from.offset);
        if to.id() == id {
            self.moved.remove(&id);
            return;
        }
        self.moved.insert(id, to);
        self.at.insert(to.offset, id);
    }

    pub fn remove(&mut self, id: NodeId, from: Place) {
        self.at.remove(&from.offset);
        self.moved.remove(&id);
        self.parents.remove(&id);
        if id.0 & NUMBERED == 0 {
            self.gone.insert(id);
        }
    }

    /// Returns whether a node gets another id when its present one is forgotten.
    pub fn is_renamed_by_forgetting(&self, id: NodeId) -> bool {
        self.moved.get(&id).is_some_and(|place| {
            let own = place.id();
            !self.gone.contains(&own) && !self.moved.contains_key(&own)
        })
    }

    /// Forgets an id that the caller no longer holds. A node that moved then gets the id of its
    /// location if that is free. The id of a node that is gone can be given out again.
    pub fn forget(&mut self, id: NodeId) {
        self.gone.remove(&id);
        self.parents.remove(&id);
        if self.is_renamed_by_forgetting(id)
            && let Some(place) = self.moved.remove(&id)
        {
            self.at.remove(&place.offset);
        }
    }

    /// Returns the number of entries in all tables.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.moved.len() + self.at.len() + self.gone.len() + self.parents.len()
    }

    /// Returns the parent directory of a node, if it was recorded.
    pub fn parent(&self, id: NodeId) -> Option<NodeId> {
        self.parents.get(&id).copied()
    }

    pub fn set_parent(&mut self, id: NodeId, parent: NodeId) {
        self.parents.insert(id, parent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(n: u64) -> Place {
        Place {
            offset: n * 32,
            far: false,
        }
    }

    #[test]
    fn ids_stay_and_are_not_used_twice() {
        let mut nodes = Nodes::default();
        let a = nodes.add(place(100));
        assert_eq!(a, NodeId(100));
        nodes.relocate(a, place(100), place(200));
        assert_eq!(
            (nodes.place(a), nodes.at(place(200))),
            (Some(place(200)), a)
        );
        let b = nodes.add(place(100));
        assert_ne!(b, a);
        assert_eq!(
            (nodes.place(b), nodes.at(place(100))),
            (Some(place(100)), b)
        );
        nodes.remove(b, place(100));
        assert_eq!(nodes.place(b), None);
        nodes.relocate(a, place(200), place(100));
        assert_eq!(
            (nodes.place(a), nodes.at(place(100))),
            (Some(place(100)), a)
        );
        nodes.remove(a, place(100));
        assert_eq!(nodes.place(a), None);
        let c = nodes.add(place(100));
        assert!(c != a && c != b);
        let d = nodes.add(place(200));
        assert_ne!(d, a);
    }

    #[test]
    fn nodes_that_no_handle_holds_are_not_kept() {
        let mut nodes = Nodes::default();
        let a = nodes.add(place(100));
        nodes.remove(a, place(100));
        // The first id is still held.
        let b = nodes.add(place(100));
        assert_ne!(b, a);
        nodes.forget(b);
        assert_eq!(
            nodes.at(place(100)),
            b,
            "its place is still the id of another"
        );
        nodes.forget(a);
        nodes.forget(b);
        assert_eq!((nodes.at(place(100)), nodes.kept()), (a, 0));
        nodes.relocate(a, place(100), place(200));
        let c = nodes.add(place(100));
        nodes.forget(c);
        assert_eq!(
            nodes.place(c),
            Some(place(100)),
            "its place is the id of what moved"
        );
        nodes.forget(a);
        assert_eq!(nodes.at(place(200)), NodeId(200));
        nodes.forget(c);
        assert_eq!((nodes.at(place(100)), nodes.kept()), (NodeId(100), 0));
        for n in 0..1000 {
            let id = nodes.add(place(n % 10));
            nodes.set_parent(id, NodeId(1));
            nodes.remove(id, place(n % 10));
            nodes.forget(id);
        }
        assert_eq!(nodes.kept(), 0);
    }
}
