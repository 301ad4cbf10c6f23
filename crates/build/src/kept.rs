//! The properties of a tree that a format has no place for.

use std::collections::{BTreeMap, HashSet};

use forerun_vfs::Timestamp;

use crate::{NewNode, NodeIndex, NodeKind, Tree};

/// Most paths that are kept as examples of one property.
const EXAMPLES: usize = 5;

/// The properties of nodes that a format keeps.
#[derive(Clone, Copy, Debug)]
pub struct KeptProperties {
    /// Symbolic links.
    pub symlinks: bool,
    /// Devices, pipes and sockets.
    pub special_files: bool,
    /// Several names of one file.
    pub hard_links: bool,
    /// Users and groups.
    pub owners: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// The set-user-id, set-group-id and sticky bits.
    pub special_bits: bool,
    /// Returns the permission bits that a reader finds.
    pub permissions: fn(&NewNode) -> u16,
    /// Returns whether a reader finds this time.
    pub time: fn(Timestamp) -> bool,
}

/// The permission bits of a mode.
const PERMISSIONS: u16 = 0o777;
/// The set-user-id, set-group-id and sticky bits.
const SPECIAL_BITS: u16 = 0o7000;

/// A property that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LossKind {
    /// A symbolic link, left out.
    Symlink,
    /// A device, pipe or socket, left out.
    Special,
    /// A further name of a file, stored as a file of its own.
    HardLink,
    /// The extended attributes of an entry.
    Xattrs,
    /// A user or group that is not root.
    Owner,
    /// Permission bits.
    Permissions,
    /// The set-user-id, set-group-id or sticky bit.
    SpecialBits,
    /// The time of the last change of contents, or a part of it.
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
            Self::Owner => "owner",
            Self::Permissions => "permissions",
            Self::SpecialBits => "special_bits",
            Self::Time => "time",
        }
    }

    /// Returns whether the entry itself is left out of the image.
    #[must_use]
    pub const fn leaves_out(self) -> bool {
        matches!(self, Self::Symlink | Self::Special)
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

/// Returns the properties of `tree` that an image of a format that keeps `kept` will not have, in the order
/// of [`LossKind`].
#[must_use]
pub fn not_kept(tree: &Tree, kept: &KeptProperties) -> Vec<NotKept> {
    let mut lost: BTreeMap<LossKind, NotKept> = BTreeMap::new();
    let mut seen = HashSet::new();
    // The path of the node at hand. Those of the nodes that wait begin with a part of it, so that a wide
    // tree takes no memory for each of its paths.
    let mut path: Vec<u8> = Vec::new();
    let mut todo: Vec<(usize, &[u8], NodeIndex)> = vec![(0, b"", Tree::ROOT)];
    while let Some((parent, name, index)) = todo.pop() {
        path.truncate(parent);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let node = tree.node(index);
        let is_file = matches!(node.kind, NodeKind::File { .. });
        let is_again = is_file && !seen.insert(index);
        // The root of many formats has no entry, and so no properties of its own.
        let losses = match index == Tree::ROOT {
            true => Vec::new(),
            false => losses(node, is_again, kept),
        };
        for what in losses {
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
        let children = tree.children(index).rev();
        todo.extend(children.map(|(name, child)| (path.len(), name, child)));
    }
    lost.into_values().collect()
}

fn losses(node: &NewNode, is_again: bool, kept: &KeptProperties) -> Vec<LossKind> {
    let is_symlink = matches!(node.kind, NodeKind::Symlink(_));
    let is_special =
        !is_symlink && !matches!(node.kind, NodeKind::Directory(_) | NodeKind::File { .. });
    if is_symlink && !kept.symlinks {
        return vec![LossKind::Symlink];
    }
    if is_special && !kept.special_files {
        return vec![LossKind::Special];
    }
    let permissions = node.mode & PERMISSIONS;
    let all = [
        (is_again && !kept.hard_links, LossKind::HardLink),
        (!node.xattrs.is_empty() && !kept.xattrs, LossKind::Xattrs),
        (
            (node.uid, node.gid) != (0, 0) && !kept.owners,
            LossKind::Owner,
        ),
        // The mode of a link means nothing.
        (
            !is_symlink && permissions != (kept.permissions)(node),
            LossKind::Permissions,
        ),
        (
            node.mode & SPECIAL_BITS != 0 && !kept.special_bits,
            LossKind::SpecialBits,
        ),
        (!(kept.time)(node.mtime), LossKind::Time),
    ];
    let lost = all.into_iter().filter(|(is_lost, _)| *is_lost);
    lost.map(|(_, what)| what).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Content;

    /// A format that keeps names and contents.
    const NOTHING: KeptProperties = KeptProperties {
        symlinks: false,
        special_files: false,
        hard_links: false,
        owners: false,
        xattrs: false,
        special_bits: false,
        permissions: |node| match node.kind {
            NodeKind::Directory(_) => 0o755,
            _ => 0o644,
        },
        time: |time| time.seconds == 0,
    };

    fn file(mode: u16) -> NewNode {
        let content = Content::Bytes(b"x"[..].into());
        NewNode::new(NodeKind::File { len: 1, content }, mode)
    }

    fn tree() -> Tree {
        let mut tree = Tree::default();
        let mut odd = file(0o4755);
        odd.xattrs.insert(b"user.a".to_vec(), b"b".to_vec());
        odd.gid = 5;
        odd.mtime.seconds = 7;
        let odd = tree.add(Tree::ROOT, b"odd", odd).unwrap();
        tree.link(Tree::ROOT, b"second", odd).unwrap();
        tree.add(Tree::ROOT, b"plain", file(0o644)).unwrap();
        let link = NewNode::new(NodeKind::Symlink(b"x".to_vec()), 0o777);
        tree.add(Tree::ROOT, b"link", link).unwrap();
        let pipe = NewNode::new(NodeKind::Fifo, 0o600);
        let deep = tree.add(Tree::ROOT, b"deep", NewNode::directory()).unwrap();
        let deeper = tree.add(deep, b"er", NewNode::directory()).unwrap();
        tree.add(deeper, b"pipe", pipe).unwrap();
        tree
    }

    #[test]
    fn each_loss_is_counted() {
        let lost = not_kept(&tree(), &NOTHING);
        let counts: Vec<_> = lost.iter().map(|lost| (lost.what, lost.count)).collect();
        assert_eq!(
            counts,
            [
                (LossKind::Symlink, 1),
                (LossKind::Special, 1),
                (LossKind::HardLink, 1),
                (LossKind::Xattrs, 2),
                (LossKind::Owner, 2),
                (LossKind::Permissions, 2),
                (LossKind::SpecialBits, 2),
                (LossKind::Time, 2),
            ]
        );
        assert_eq!(lost[1].examples, [b"deep/er/pipe".to_vec()]);
        assert_eq!(lost[2].examples, [b"second".to_vec()]);
    }
}
