//! Finds the properties of a tree that a format cannot store.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use forerun_vfs::{Timestamp, is_acl};

use crate::{NewNode, NodeIndex, NodeKind, Tree};

/// Maximum number of example paths per property.
const EXAMPLES: usize = 5;

#[derive(Clone, Copy, Debug)]
pub struct KeptProperties {
    pub symlinks: bool,
    pub special_files: bool,
    /// One file with several names.
    pub hard_links: bool,
    pub owners: bool,
    /// Returns whether the format stores an extended attribute of this name.
    pub xattrs: fn(&[u8]) -> bool,
    /// The set-user-id, set-group-id and sticky bits.
    pub special_bits: bool,
    /// Returns the permission bits that a reader sees.
    pub permissions: fn(&NewNode) -> u16,
    /// Returns whether a reader sees this time unchanged.
    pub time: fn(Timestamp) -> bool,
    /// The format stores properties of the root directory.
    pub root: bool,
}

impl KeptProperties {
    /// A format that stores everything.
    pub const ALL: Self = Self {
        symlinks: true,
        special_files: true,
        hard_links: true,
        owners: true,
        xattrs: |_| true,
        special_bits: true,
        permissions: |node| node.mode & PERMISSIONS,
        time: |_| true,
        root: true,
    };
}

const PERMISSIONS: u16 = 0o777;
const SPECIAL_BITS: u16 = 0o7000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LossKind {
    /// A symbolic link, which the image lacks.
    Symlink,
    /// A device, pipe or socket, which the image lacks.
    Special,
    /// A further name of a file, stored as a separate file.
    HardLink,
    Xattrs,
    Acls,
    /// A user or group other than root.
    Owner,
    Permissions,
    SpecialBits,
    /// The modification time, or its precision.
    Time,
}

impl LossKind {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Symlink => "symlink",
            Self::Special => "special",
            Self::HardLink => "hard_link",
            Self::Xattrs => "xattrs",
            Self::Acls => "acls",
            Self::Owner => "owner",
            Self::Permissions => "permissions",
            Self::SpecialBits => "special_bits",
            Self::Time => "time",
        }
    }

    /// Returns whether the image lacks the entry itself.
    #[must_use]
    pub const fn leaves_out(self) -> bool {
        matches!(self, Self::Symlink | Self::Special)
    }
}

/// A property that is lost, and the number of entries that lose it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotKept {
    pub what: LossKind,
    pub count: u64,
    pub examples: Vec<Vec<u8>>,
    /// Namespaces of extended attributes, such as `trusted.`.
    pub name_spaces: BTreeSet<Vec<u8>>,
}

/// Returns the properties of `tree` that an image of a format with the properties `kept` will lack,
/// in the order of [`LossKind`].
#[must_use]
pub fn not_kept(tree: &Tree, kept: &KeptProperties) -> Vec<NotKept> {
    let mut lost: BTreeMap<LossKind, NotKept> = BTreeMap::new();
    let mut seen = HashSet::new();
    // The path of the current node. Pending nodes store only the length of their parent's path
    // within it, so that a wide tree does not need memory for each path.
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
        let losses = if index == Tree::ROOT && !kept.root {
            Vec::new()
        } else {
            losses(node, is_again, kept)
        };
        for what in losses {
            let entry = lost.entry(what).or_insert_with(|| NotKept {
                what,
                count: 0,
                examples: Vec::new(),
                name_spaces: BTreeSet::new(),
            });
            if what == LossKind::Xattrs {
                let lost = lost_xattrs(node, kept).map(name_space);
                entry.name_spaces.extend(lost.map(<[u8]>::to_vec));
            }
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
    let mut acls = node.xattrs.keys().filter(|name| is_acl(name));
    let lost_acls = acls.any(|name| !(kept.xattrs)(name));
    let all = [
        (is_again && !kept.hard_links, LossKind::HardLink),
        (lost_xattrs(node, kept).next().is_some(), LossKind::Xattrs),
        (lost_acls, LossKind::Acls),
        (
            (node.uid, node.gid) != (0, 0) && !kept.owners,
            LossKind::Owner,
        ),
        // The mode of a symbolic link means nothing.
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

/// Returns the names of the extended attributes that are lost, except access control lists.
fn lost_xattrs<'n>(
    node: &'n NewNode,
    kept: &KeptProperties,
) -> impl Iterator<Item = &'n [u8]> + use<'n> {
    let keeps = kept.xattrs;
    let names = node.xattrs.keys().map(Vec::as_slice);
    names.filter(move |name| !is_acl(name) && !keeps(name))
}

/// Returns the name up to and including the first dot.
fn name_space(name: &[u8]) -> &[u8] {
    let dot = name.iter().position(|byte| *byte == b'.');
    dot.and_then(|dot| name.get(..=dot)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Content;

    const NOTHING: KeptProperties = KeptProperties {
        symlinks: false,
        special_files: false,
        hard_links: false,
        owners: false,
        xattrs: |_| false,
        special_bits: false,
        permissions: |node| match node.kind {
            NodeKind::Directory(_) => 0o755,
            _ => 0o644,
        },
        time: |time| time.seconds == 0,
        root: false,
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
        assert_eq!(lost[3].name_spaces, [b"user.".to_vec()].into());
    }

    #[test]
    fn attributes_that_are_lost_are_told_by_their_name_spaces() {
        let mut tree = Tree::default();
        let mut node = file(0o644);
        for name in ["user.a", "user.", "", "btrfs.x", "system.posix_acl_access"] {
            node.xattrs.insert(name.into(), Vec::new());
        }
        tree.add(Tree::ROOT, b"file", node).unwrap();
        let kept = KeptProperties {
            xattrs: |name| name == b"user.a",
            ..KeptProperties::ALL
        };
        let lost = not_kept(&tree, &kept);
        let counts: Vec<_> = lost.iter().map(|lost| (lost.what, lost.count)).collect();
        assert_eq!(counts, [(LossKind::Xattrs, 1), (LossKind::Acls, 1)]);
        let spaces = ["", "btrfs.", "user."].map(|space| space.as_bytes().to_vec());
        assert_eq!(lost[0].name_spaces, spaces.into());
    }
}
