//! The identity of a node.

use std::fmt;

/// Identifies a node by what its format finds it with: header offset, inode number, nid, entry
/// position. Stable for as long as the image does not change, so it can be an inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
