//! Inode numbers of a volume's nodes, across several server processes.
//!
//! A number is derived from the node ID ([`Inodes`]) and contains the server's sequence number:
//! each server opens the volume anew, and IDs may then belong to other nodes. Inherited inodes keep
//! their numbers. All other numbers of earlier servers are invalid.

use std::collections::HashMap;
use std::sync::{RwLock, RwLockReadGuard};

use forerun_io::Unpoisoned;
use forerun_vfs::NodeId;

use crate::inode::Inodes;

/// The node of an invalid number. No driver uses this ID, because IDs are offsets in the volume.
pub const LOST: NodeId = NodeId(u64::MAX);
pub const ROOT: u64 = 1;
/// Position of the server's sequence number in an inode number. Drivers use the bits above, and
/// those below suffice for 9 PB of 32-byte directory entries.
const SERVER_SHIFT: u32 = 48;
const SERVER_MASK: u64 = 0x3fff;
/// Maximum sequence number of a server: the number of servers before it on the same mount.
pub const MOST_SERVERS: u64 = SERVER_MASK;

#[derive(Debug)]
pub struct Numbers {
    own: Inodes,
    root: NodeId,
    /// This server's sequence number, shifted.
    server: u64,
    inherited: RwLock<InheritedNumbers>,
}

#[derive(Debug, Default)]
struct InheritedNumbers {
    nodes: HashMap<u64, NodeId>,
    numbers: HashMap<NodeId, u64>,
}

impl Numbers {
    /// Creates the numbers of the volume with this root, for the server with sequence number
    /// `server` (at most [`MOST_SERVERS`]).
    pub fn new(root: NodeId, server: u64) -> Self {
        Self {
            own: Inodes::new(root),
            root,
            server: server << SERVER_SHIFT,
            inherited: RwLock::default(),
        }
    }

    /// Returns whether this is the last sequence number. The next server would reuse the first
    /// one's inode numbers.
    pub const fn are_used_up(&self) -> bool {
        self.server == MOST_SERVERS << SERVER_SHIFT
    }

    pub fn inherit(&self, number: u64, node: NodeId) {
        let mut inherited = self.inherited.write().unpoisoned();
        inherited.nodes.insert(number, node);
        inherited.numbers.insert(node, number);
    }

    /// Returns the node of a number, [`LOST`] for an invalid one.
    pub fn node(&self, number: u64) -> NodeId {
        if number == ROOT {
            return self.root;
        }
        if let Some(node) = self.read().nodes.get(&number) {
            return *node;
        }
        let is_own = number & (SERVER_MASK << SERVER_SHIFT) == self.server;
        if is_own {
            self.own.node(number - self.server)
        } else {
            LOST
        }
    }

    /// Returns the number of a node, `None` for an ID out of range.
    pub fn number(&self, node: NodeId) -> Option<u64> {
        if node == self.root {
            return Some(ROOT);
        }
        let inherited = self.read();
        if let Some(number) = inherited.numbers.get(&node) {
            return Some(*number);
        }
        let own = self.own.number(node)?;
        let has_room = own & (SERVER_MASK << SERVER_SHIFT) == 0;
        let number = own | self.server;
        (has_room && !inherited.nodes.contains_key(&number)).then_some(number)
    }

    /// Removes an inherited number that the kernel has forgotten.
    pub fn forget(&self, number: u64) {
        if self.read().nodes.contains_key(&number) {
            let mut inherited = self.inherited.write().unpoisoned();
            if let Some(node) = inherited.nodes.remove(&number) {
                inherited.numbers.remove(&node);
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, InheritedNumbers> {
        self.inherited.read().unpoisoned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME_ROOT: NodeId = NodeId(32);

    #[test]
    fn numbers_of_earlier_servers_lead_to_what_is_inherited_or_nowhere() {
        let first = Numbers::new(VOLUME_ROOT, 0);
        let [directory, file] = [100, 200].map(|id| first.number(NodeId(id)).unwrap());
        assert_eq!([directory, file], [100, 200]);
        let second = Numbers::new(VOLUME_ROOT, 1);
        second.inherit(directory, NodeId(300));
        assert_eq!(second.node(directory), NodeId(300));
        assert_eq!(second.number(NodeId(300)), Some(directory));
        assert_eq!(second.node(file), LOST);
        for id in [100, 200, 1, (1 << 62) | 7, (1 << 63) | 7] {
            let number = second.number(NodeId(id)).unwrap();
            assert_eq!(second.node(number), NodeId(id));
            assert_ne!(first.node(number), NodeId(id));
        }
        for numbers in [&first, &second] {
            assert_eq!(numbers.number(VOLUME_ROOT), Some(ROOT));
            assert_eq!(numbers.node(ROOT), VOLUME_ROOT);
        }
        second.forget(directory);
        assert_eq!(second.node(directory), LOST);
        assert_ne!(second.number(NodeId(300)), Some(directory));
    }

    #[test]
    fn an_id_that_leaves_no_room_has_no_number() {
        let numbers = Numbers::new(VOLUME_ROOT, 5);
        assert_eq!(numbers.number(NodeId(1 << SERVER_SHIFT)), None);
        assert_eq!(numbers.number(NodeId(u64::MAX)), None);
    }
}
