//! Maps node IDs to inode numbers.
//!
//! A node's ID is its inode number, with two exceptions required by FUSE:
//!
//! - The root of a mount has number 1, so it swaps numbers with the node whose ID is 1.
//! - 0 is not a valid number. The node with ID 0 gets the highest number, which is no driver's ID:
//!   IDs are offsets in an image, and no image is that long.
//!
//! The mapping is one-to-one and needs no table, so numbers are the same in every mount of an
//! image, and no state must be kept until the kernel forgets a node.

use forerun_vfs::NodeId;

/// Number of the node with ID 0.
const INSTEAD_OF_ZERO: u64 = u64::MAX;
const ROOT: u64 = 1;

#[derive(Clone, Copy, Debug)]
pub struct Inodes {
    root: u64,
}

impl Inodes {
    pub const fn new(root: NodeId) -> Self {
        Self { root: root.0 }
    }

    /// Returns the inode number of `node`, `None` for the one ID that has none.
    pub const fn number(self, node: NodeId) -> Option<u64> {
        match self.trade(node.0) {
            0 => Some(INSTEAD_OF_ZERO),
            INSTEAD_OF_ZERO => None,
            number => Some(number),
        }
    }

    pub const fn node(self, number: u64) -> NodeId {
        match number {
            INSTEAD_OF_ZERO => NodeId(self.trade(0)),
            number => NodeId(self.trade(number)),
        }
    }

    const fn trade(self, n: u64) -> u64 {
        if n == self.root {
            ROOT
        } else if n == ROOT {
            self.root
        } else {
            n
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_to_one_whatever_the_root() {
        for root in [0, 1, 2, 32, 1 << 40] {
            let inodes = Inodes::new(NodeId(root));
            assert_eq!(inodes.number(NodeId(root)), Some(1));
            let nodes = [0, 1, 2, 3, 31, 32, 33, 1 << 40, u64::MAX - 1];
            let mut seen = std::collections::HashSet::new();
            for node in nodes.map(NodeId) {
                let number = inodes.number(node).unwrap();
                assert_ne!(number, 0);
                assert!(seen.insert(number), "{root}: {node} shares {number}");
                assert_eq!(inodes.node(number), node, "{root}");
            }
        }
    }

    #[test]
    fn most_numbers_are_the_ids() {
        let inodes = Inodes::new(NodeId(32));
        assert_eq!(inodes.number(NodeId(4096)), Some(4096));
        assert_eq!(inodes.number(NodeId(1)), Some(32));
        assert_eq!(inodes.number(NodeId(u64::MAX)), None);
    }
}
