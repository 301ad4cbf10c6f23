//! Directory blocks: the entries, followed by their names.

use forerun_build::{NodeIndex, NodeKind, Tree, WalkedDir};
use forerun_io::u64_from;

use super::plan::Plan;

/// Length of a directory entry without its name.
const ENTRY: usize = 12;

/// How a directory is divided into blocks.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Number of entries in each block.
    blocks: Vec<usize>,
    pub last: u64,
    pub len: u64,
}

impl Listing {
    /// Divides the entries of a directory into blocks of `block` bytes.
    pub fn new(tree: &Tree, plan: &Plan<'_>, dir: &WalkedDir<'_>, block: usize) -> Self {
        let mut listing = Self::default();
        let (mut count, mut used) = (0, 0);
        for (name, _) in entries(tree, plan, dir) {
            let len = ENTRY + name.len();
            if used + len > block {
                listing.blocks.push(count);
                listing.len += u64_from(block);
                (count, used) = (0, 0);
            }
            count += 1;
            used += len;
        }
        listing.blocks.push(count);
        listing.last = u64_from(used);
        listing.len += listing.last;
        listing
    }

    /// Encodes the directory. `nid` returns the nid of a node.
    pub fn encode(
        &self,
        tree: &Tree,
        plan: &Plan<'_>,
        dir: &WalkedDir<'_>,
        block: usize,
        nid: impl Fn(NodeIndex) -> u64,
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut entries = entries(tree, plan, dir).into_iter();
        let mut blocks = self.blocks.iter().peekable();
        while let Some(&count) = blocks.next() {
            let start = bytes.len();
            let entries: Vec<_> = entries.by_ref().take(count).collect();
            let mut name_at = count * ENTRY;
            for &(name, node) in &entries {
                bytes.extend_from_slice(&nid(node).to_le_bytes());
                bytes.extend_from_slice(&u16::try_from(name_at).unwrap_or(0).to_le_bytes());
                bytes.extend_from_slice(&[file_type(&tree.node(node).kind), 0]);
                name_at += name.len();
            }
            for (name, _) in entries {
                bytes.extend_from_slice(name);
            }
            if blocks.peek().is_some() {
                bytes.resize(start + block, 0);
            }
        }
        bytes
    }
}

/// Returns the sorted entries of a directory with `.` and `..`, which are not always first.
fn entries<'t>(tree: &'t Tree, plan: &Plan<'_>, dir: &WalkedDir<'_>) -> Vec<(&'t [u8], NodeIndex)> {
    let parent = plan
        .walked
        .dirs
        .get(dir.parent)
        .map_or(Tree::ROOT, |dir| dir.node);
    let mut entries: Vec<_> = tree.children(dir.node).collect();
    for (name, node) in [(b".".as_slice(), dir.node), (b"..", parent)] {
        let at = entries.partition_point(|(other, _)| *other < name);
        entries.insert(at, (name, node));
    }
    entries
}

const fn file_type(kind: &NodeKind) -> u8 {
    match kind {
        NodeKind::File { .. } => 1,
        NodeKind::Directory(_) => 2,
        NodeKind::CharDevice(_) => 3,
        NodeKind::BlockDevice(_) => 4,
        NodeKind::Fifo => 5,
        NodeKind::Socket => 6,
        NodeKind::Symlink(_) => 7,
    }
}
