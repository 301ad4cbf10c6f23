//! Converts AUFS whiteouts, as in OCI layers, to overlayfs whiteouts.

use forerun_vfs::Device;

use super::{BuildError, NodeIndex, NodeKind, Tree};

const PREFIX: &[u8] = b".wh.";
/// The entry that hides the contents of its directory in lower layers.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Prefix of AUFS's private files, which mean nothing elsewhere.
const OWN: &[u8] = b".wh..wh.";
const WHITEOUT: Device = Device { major: 0, minor: 0 };
/// The overlayfs attribute that replaces the `OPAQUE` entry.
const ATTRIBUTE: &[u8] = b"trusted.overlay.opaque";

/// Replaces each `.wh.NAME` by a character device 0:0 named NAME, and each `.wh..wh..opq` by the
/// attribute `trusted.overlay.opaque` of its directory. An existing entry NAME stays, and becomes
/// opaque if it is a directory. Fails if NAME is not a valid name.
pub fn overlay_whiteouts(tree: &mut Tree) -> Result<(), BuildError> {
    for dir in tree.indices() {
        let children = tree.children(dir);
        let found = children.filter(|(name, _)| name.starts_with(PREFIX));
        let found: Vec<_> = found.map(|(name, node)| (name.to_vec(), node)).collect();
        for (name, node) in found {
            tree.unlink(dir, &name);
            if name == OPAQUE {
                make_opaque(tree, dir);
            } else if !name.starts_with(OWN) {
                hide(
                    tree,
                    dir,
                    name.get(PREFIX.len()..).unwrap_or_default(),
                    node,
                )?;
            }
        }
    }
    Ok(())
}

/// Removes the whiteouts of overlayfs, and its mark of opaque directories: what a tree without lower layers has no
/// use for.
pub fn strip_whiteouts(tree: &mut Tree) {
    for dir in tree.indices() {
        tree.node_mut(dir).xattrs.remove(ATTRIBUTE);
        let children = tree.children(dir);
        let found = children.filter(|(_, node)| {
            matches!(tree.node(*node).kind, NodeKind::CharDevice(device) if device == WHITEOUT)
        });
        let found: Vec<_> = found.map(|(name, _)| name.to_vec()).collect();
        for name in found {
            tree.unlink(dir, &name);
        }
    }
}

fn make_opaque(tree: &mut Tree, dir: NodeIndex) {
    let xattrs = &mut tree.node_mut(dir).xattrs;
    xattrs.insert(ATTRIBUTE.to_vec(), b"y".to_vec());
}

/// Adds a whiteout with the owner and time of the AUFS entry.
fn hide(tree: &mut Tree, dir: NodeIndex, name: &[u8], from: NodeIndex) -> Result<(), BuildError> {
    if let Some(there) = tree.child(dir, name) {
        if matches!(tree.node(there).kind, NodeKind::Directory(_)) {
            make_opaque(tree, there);
        }
        return Ok(());
    }
    let mut node = tree.node(from).clone();
    node.kind = NodeKind::CharDevice(WHITEOUT);
    tree.add(dir, name, node).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Content, NewNode};

    fn file() -> NewNode {
        let content = Content::Bytes([].into());
        NewNode::new(NodeKind::File { len: 0, content }, 0o640)
    }

    #[test]
    fn whiteouts_are_those_of_overlayfs() {
        let mut tree = Tree::default();
        let dir = tree.add(Tree::ROOT, b"dir", NewNode::directory()).unwrap();
        for name in [
            &b".wh.gone"[..],
            b".wh..wh..opq",
            b".wh..wh.plnk",
            b".wh.kept",
            b"kept",
        ] {
            tree.add(dir, name, file()).unwrap();
        }
        tree.add(Tree::ROOT, b".wh.dir", file()).unwrap();
        overlay_whiteouts(&mut tree).unwrap();
        let names = tree.children(dir).map(|(name, _)| name.to_vec());
        assert_eq!(names.collect::<Vec<_>>(), [b"gone", b"kept"]);
        let gone = tree.node(tree.child(dir, b"gone").unwrap());
        assert!(matches!(gone.kind, NodeKind::CharDevice(device) if device == WHITEOUT));
        assert_eq!(gone.mode, 0o640);
        assert_eq!(tree.node(dir).xattrs[ATTRIBUTE], b"y");
        strip_whiteouts(&mut tree);
        let names = tree.children(dir).map(|(name, _)| name.to_vec());
        assert_eq!(names.collect::<Vec<_>>(), [b"kept"]);
        assert!(tree.node(dir).xattrs.is_empty());
        let kept = tree.node(tree.child(dir, b"kept").unwrap());
        assert!(matches!(kept.kind, NodeKind::File { .. }));
        assert!(tree.child(Tree::ROOT, b".wh.dir").is_none());
        tree.add(dir, b".wh.", file()).unwrap();
        assert!(overlay_whiteouts(&mut tree).is_err());
    }
}
