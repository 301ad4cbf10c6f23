//! Finds files that can no longer be read when the image is written, although the scan of the
//! directory saw them.

use super::{BuildError, Content, NodeIndex, NodeKind, Tree};

/// Removes all names of host files that can no longer be opened from the tree. Passes the error of
/// each file to `dropped`. Returns the number of names.
pub fn drop_unreadable(tree: &mut Tree, dropped: &mut dyn FnMut(BuildError)) -> u64 {
    let mut names = 0;
    for (dir, name, node, error) in unreadable(tree) {
        tree.unlink(dir, &name);
        names += 1;
        let gone = NodeKind::File {
            len: 0,
            content: Content::Bytes([].into()),
        };
        // A file with several names is reported once.
        let kind = std::mem::replace(&mut tree.node_mut(node).kind, gone);
        let is_first = |content: &Content| matches!(content, Content::Host(_));
        if matches!(&kind, NodeKind::File { content, .. } if is_first(content)) {
            dropped(error);
        }
    }
    names
}

type Name = (NodeIndex, Vec<u8>, NodeIndex, BuildError);

/// Lists the names of files that cannot be opened: directory, name, file and error.
fn unreadable(tree: &Tree) -> Vec<Name> {
    let mut found = Vec::new();
    let mut pending = vec![Tree::ROOT];
    while let Some(dir) = pending.pop() {
        for (name, node) in tree.children(dir) {
            match &tree.node(node).kind {
                NodeKind::Directory(_) => pending.push(node),
                NodeKind::File {
                    content: Content::Host(file),
                    ..
                } => {
                    if let Err(source) = file.open() {
                        let path = file.path();
                        let error = BuildError::Host { path, source };
                        found.push((dir, name.to_vec(), node, error));
                    }
                }
                _ => {}
            }
        }
    }
    found
}
