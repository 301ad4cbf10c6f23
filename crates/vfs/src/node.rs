use std::fmt;

/// Identifies a node by the value with which its format finds it: header offset, inode number, nid,
/// entry position. Stable as long as the image does not change, so it can serve as an inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
