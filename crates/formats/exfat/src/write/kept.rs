//! Properties of a tree that the format has no place for.

use std::collections::{BTreeMap, HashSet};

use forerun_build::{NodeIndex, NodeKind, Tree};

/// Most paths that are kept as examples of one property.
const EXAMPLES: usize = 5;

/// A property that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossKind {
    /// A symbolic link, left out.
    Symlink,
    /// A device, pipe or socket, left out.
    Special,
    /// A further name of a file, stored as a file of its own.
    HardLink,
    /// The extended attributes of an entry.
    Xattrs,
    /// The set-user-id, set-group-id or sticky bit.
    SpecialBits,
    /// A time before 1980 or after 2107, moved there.
    Time,
}

impl LossKind {
    /// Returns a short stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Symlink => "symlink",
            Self::Special => "special",
            Self::HardLink => "hard_link",
            Self::Xattrs => "xattrs",
            Self::SpecialBits => "special_bits",
            Self::Time => "time",
        }
    }
}

/// A property that is lost, and of how many entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotKept {
    /// The property.
    pub what: LossKind,
    /// Number of entries.
    pub count: u64,
    /// The first paths.
    pub examples: Vec<Vec<u8>>,
}

/// Returns all properties of `tree` that the volume will not have, except owners and permissions.
#[must_use]
pub fn not_kept(tree: &Tree) -> Vec<NotKept> {
    let mut lost: BTreeMap<LossKind, NotKept> = BTreeMap::new();
    let mut seen = HashSet::new();
    let mut todo: Vec<(Vec<u8>, NodeIndex)> = vec![(Vec::new(), Tree::ROOT)];
    while let Some((path, index)) = todo.pop() {
        for what in losses(tree, index, &mut seen) {
            let entry = lost.entry(what).or_insert_with(|| NotKept {
                what,
                count: 0,
                examples: Vec::new(),
            });
            entry.count += 1;
            if entry.examples.len() < EXAMPLES {
                entry.examples.push(path.clone());
            }
        }
        for (name, child) in tree.children(index).rev() {
            let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
            todo.push(([&path, slash, name].concat(), child));
        }
    }
    lost.into_values().collect()
}

fn losses(tree: &Tree, index: NodeIndex, seen: &mut HashSet<NodeIndex>) -> Vec<LossKind> {
    let node = tree.node(index);
    let mut losses = Vec::new();
    match &node.kind {
        NodeKind::Directory(_) => {}
        NodeKind::File { .. } => {
            if !seen.insert(index) {
                losses.push(LossKind::HardLink);
            }
        }
        NodeKind::Symlink(_) => return vec![LossKind::Symlink],
        NodeKind::BlockDevice(_) | NodeKind::CharDevice(_) | NodeKind::Fifo | NodeKind::Socket => {
            return vec![LossKind::Special];
        }
    }
    let not_root = index != Tree::ROOT;
    if !node.xattrs.is_empty() {
        losses.push(LossKind::Xattrs);
    }
    if node.mode & 0o7000 != 0 && not_root {
        losses.push(LossKind::SpecialBits);
    }
    if not_root && !crate::time::can_keep(node.mtime) {
        losses.push(LossKind::Time);
    }
    losses
}
