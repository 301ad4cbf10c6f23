//! Inode numbers of nodes, where an earlier server has told the kernel some.
//!
//! A node's number follows from its id ([`Inodes`]) until a server dies: the next one opens the volume
//! anew, and nodes that have moved since get other ids. What the kernel knows keeps its number, which
//! a table then leads to the node. A node whose own number the kernel knows for something else gets a
//! number that no driver hands out.

use std::collections::HashMap;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use forerun_io::Unpoisoned;
use forerun_vfs::NodeId;

use crate::inode::Inodes;

/// The node of numbers that lead to nothing any more. No driver knows one: ids are places in a volume.
pub const LOST: NodeId = NodeId(u64::MAX);
/// Numbers from here on belong to no node by themselves.
const SPARE: u64 = 1 << 62;

/// The mapping of one volume.
pub struct Numbers {
    own: Inodes,
    /// Nothing where no server has died.
    inherited: Option<RwLock<InheritedNumbers>>,
}

#[derive(Default)]
struct InheritedNumbers {
    nodes: HashMap<u64, NodeId>,
    numbers: HashMap<NodeId, u64>,
    /// References of the kernel to numbers that lead to nothing.
    lost: HashMap<u64, u64>,
    next: u64,
}

impl Numbers {
    /// Creates the numbers for a volume with this root that the kernel knows nothing of.
    pub const fn new(root: NodeId) -> Self {
        Self {
            own: Inodes::new(root),
            inherited: None,
        }
    }

    /// Creates the numbers for a volume of which the kernel knows some already. `known` has each number
    /// with its node, or, where it has none, with the number of times that the kernel was told of it.
    pub fn inherited(
        root: NodeId,
        known: impl Iterator<Item = (u64, Result<NodeId, u64>)>,
    ) -> Self {
        let own = Inodes::new(root);
        let mut all = InheritedNumbers {
            next: SPARE,
            ..InheritedNumbers::default()
        };
        for (number, node) in known {
            all.next = all
                .next
                .max(number.saturating_add(1) & (SPARE | (SPARE - 1)));
            match node {
                Ok(node) if own.number(node) == Some(number) => {}
                Ok(node) => {
                    all.nodes.insert(number, node);
                    all.numbers.insert(node, number);
                }
                Err(times) => {
                    all.nodes.insert(number, LOST);
                    all.lost.insert(number, times);
                }
            }
        }
        Self {
            own,
            inherited: Some(RwLock::new(all)),
        }
    }

    /// Returns the node of a number.
    pub fn node(&self, number: u64) -> NodeId {
        let inherited = self.read().and_then(|all| all.nodes.get(&number).copied());
        inherited.unwrap_or_else(|| self.own.node(number))
    }

    /// Returns the number of a node; nothing for the one id that cannot have one.
    pub fn number(&self, node: NodeId) -> Option<u64> {
        let own = self.own.number(node);
        let (Some(all), Some(number)) = (self.read(), own) else {
            return own;
        };
        if let Some(number) = all.numbers.get(&node) {
            return Some(*number);
        }
        if !all.nodes.contains_key(&number) {
            return Some(number);
        }
        drop(all);
        let mut all = self.write()?;
        // Another thread may have been first.
        if let Some(number) = all.numbers.get(&node) {
            return Some(*number);
        }
        let number = all.next;
        all.next += 1;
        all.nodes.insert(number, node);
        all.numbers.insert(node, number);
        Some(number)
    }

    /// Drops a number that the kernel has forgotten for good.
    pub fn forget(&self, number: u64) {
        if self
            .read()
            .is_some_and(|all| all.nodes.contains_key(&number))
            && let Some(mut all) = self.write()
            && let Some(node) = all.nodes.remove(&number)
        {
            all.numbers.remove(&node);
        }
    }

    /// Takes back `times` references of the kernel to a number that leads to nothing, and drops the
    /// number after the last one.
    pub fn forget_lost(&self, number: u64, times: u64) {
        let Some(mut all) = self.write() else {
            return;
        };
        let Some(left) = all.lost.get_mut(&number) else {
            return;
        };
        *left = left.saturating_sub(times);
        if *left == 0 {
            all.lost.remove(&number);
            all.nodes.remove(&number);
        }
    }

    fn read(&self) -> Option<RwLockReadGuard<'_, InheritedNumbers>> {
        let all = self.inherited.as_ref()?;
        Some(all.read().unpoisoned())
    }

    fn write(&self) -> Option<RwLockWriteGuard<'_, InheritedNumbers>> {
        let all = self.inherited.as_ref()?;
        Some(all.write().unpoisoned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: NodeId = NodeId(1);

    #[test]
    fn nodes_keep_the_numbers_that_the_kernel_knows() {
        let known = [(10, Ok(NodeId(20))), (20, Err(2)), (30, Ok(NodeId(30)))];
        let numbers = Numbers::inherited(ROOT, known.into_iter());
        assert_eq!(numbers.node(10), NodeId(20));
        assert_eq!(numbers.number(NodeId(20)), Some(10));
        assert_eq!(numbers.node(20), LOST);
        assert_eq!(numbers.number(NodeId(30)), Some(30));
        assert_eq!(numbers.number(NodeId(40)), Some(40));
        // Its own number means another node.
        assert_eq!(numbers.number(NodeId(10)), Some(SPARE));
        assert_eq!(numbers.number(NodeId(10)), Some(SPARE));
        assert_eq!(numbers.node(SPARE), NodeId(10));
    }

    #[test]
    fn a_number_that_the_kernel_forgets_is_the_nodes_own_again() {
        let known = [(10, Ok(NodeId(20))), (20, Err(2))];
        let numbers = Numbers::inherited(ROOT, known.into_iter());
        numbers.forget(10);
        assert_eq!(numbers.node(10), NodeId(10));
        assert_eq!(numbers.number(NodeId(20)), Some(SPARE));
        numbers.forget(SPARE);
        numbers.forget_lost(20, 1);
        assert_eq!(numbers.node(20), LOST);
        numbers.forget_lost(20, 1);
        assert_eq!(numbers.number(NodeId(20)), Some(20));
    }

    #[test]
    fn spare_numbers_are_not_given_twice() {
        let known = [(SPARE + 4, Ok(NodeId(9))), (8, Err(1))];
        let numbers = Numbers::inherited(ROOT, known.into_iter());
        assert_eq!(numbers.number(NodeId(8)), Some(SPARE + 5));
    }
}
