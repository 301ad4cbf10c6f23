//! A tree in walk order: directories, files and link counts, before anything is written.
//!
//! A walk visits the names of each directory in byte order and enters a directory where it meets
//! it, like `ls -lR` and `find`. Such a walk reads files sequentially if their data is stored in
//! this order. The writer assigns inode numbers, because each format has its own order for them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::content::Content;
use super::exact::Unreadable;
use super::tree::{BuildError, NodeIndex, NodeKind, Tree};

/// The directories and files of a tree, in walk order.
#[derive(Debug)]
pub struct WalkedTree<'t> {
    /// Directories. The root is the first.
    pub dirs: Vec<WalkedDir<'t>>,
    /// Indices into `dirs`. Each directory comes after all directories below it.
    pub children_first: Vec<usize>,
    /// Regular files, each once, at its first name in the walk. A writer may sort them.
    pub files: Vec<WalkedFile<'t>>,
    pub nodes: WalkedNodes,
}

#[derive(Clone, Copy, Debug)]
pub struct WalkedDir<'t> {
    pub node: NodeIndex,
    /// Index of the parent. The root is its own parent.
    pub parent: usize,
    name: &'t [u8],
}

#[derive(Clone, Copy, Debug)]
pub struct WalkedFile<'t> {
    pub node: NodeIndex,
    pub len: u64,
    pub content: &'t Content,
    dir: usize,
    name: &'t [u8],
}

#[derive(Debug, Default)]
pub struct WalkedNodes {
    nodes: HashMap<NodeIndex, WalkedNode>,
    numbered: u32,
}

/// The number and the link count of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkedNode {
    /// Number from 1; 0 until [`WalkedNodes::number`] assigns one.
    pub number: u32,
    /// Number of names. A directory has two, and one more per subdirectory.
    pub nlink: u32,
}

impl<'t> WalkedTree<'t> {
    /// Walks a tree without recursion, because a tree may have any depth.
    #[must_use]
    pub fn new(tree: &'t Tree) -> Self {
        let mut walked = Self {
            dirs: Vec::new(),
            children_first: Vec::new(),
            files: Vec::new(),
            nodes: WalkedNodes::default(),
        };
        walked.enter(Tree::ROOT, 0, b"");
        let mut pending = vec![(0, tree.children(Tree::ROOT))];
        while let Some((dir, children)) = pending.last_mut() {
            let dir = *dir;
            let Some((name, node)) = children.next() else {
                walked.children_first.push(dir);
                pending.pop();
                continue;
            };
            match &tree.node(node).kind {
                NodeKind::Directory(_) => {
                    walked.nodes.add_links(walked.dir(dir).0, 1);
                    pending.push((walked.dirs.len(), tree.children(node)));
                    walked.enter(node, dir, name);
                }
                NodeKind::File { len, content } => {
                    if walked.nodes.add_links(node, 1) {
                        walked.files.push(WalkedFile {
                            node,
                            len: *len,
                            content,
                            dir,
                            name,
                        });
                    }
                }
                _ => {
                    walked.nodes.add_links(node, 1);
                }
            }
        }
        walked
    }

    fn enter(&mut self, node: NodeIndex, parent: usize, name: &'t [u8]) {
        self.nodes.add_links(node, 2);
        self.dirs.push(WalkedDir { node, parent, name });
    }

    /// Returns the nodes of a directory and of its parent. The root is its own parent.
    #[must_use]
    pub fn dir(&self, dir: usize) -> (NodeIndex, NodeIndex) {
        let node = |dir: usize| self.dirs.get(dir).map_or(Tree::ROOT, |dir| dir.node);
        let parent = self.dirs.get(dir).map_or(0, |dir| dir.parent);
        (node(dir), node(parent))
    }

    #[must_use]
    pub fn path(&self, dir: usize, name: &[u8]) -> Vec<u8> {
        let mut names = vec![name];
        let mut at = dir;
        while let Some(dir) = self.dirs.get(at).filter(|_| at > 0) {
            names.push(dir.name);
            at = dir.parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    #[must_use]
    pub fn file_path(&self, file: &WalkedFile<'_>) -> Vec<u8> {
        self.path(file.dir, file.name)
    }

    /// Returns the error for a file that differs from its scan.
    #[must_use]
    pub fn unreadable(&self, file: &WalkedFile<'_>, reason: Unreadable) -> BuildError {
        reason.of(self.file_path(file), file.len)
    }

    /// Sorts the files by a key of their paths. The sort is stable.
    pub fn sort_files<K: Ord>(&mut self, key: impl Fn(&[u8]) -> K) {
        let mut files = std::mem::take(&mut self.files);
        files.sort_by_cached_key(|file| key(&self.file_path(file)));
        self.files = files;
    }
}

impl WalkedNodes {
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether there are no nodes. A walked tree has at least its root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns number and links of a node; zeros for a node of another tree.
    #[must_use]
    pub fn get(&self, node: NodeIndex) -> WalkedNode {
        self.nodes.get(&node).copied().unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = NodeIndex> {
        self.nodes.keys().copied()
    }

    /// Gives the node the next number, unless it has one. Returns whether it got one. The caller
    /// refuses trees of more than `u32::MAX` nodes.
    pub fn number(&mut self, node: NodeIndex) -> bool {
        let unnumbered = self.nodes.get_mut(&node).filter(|node| node.number == 0);
        let Some(node) = unnumbered else {
            return false;
        };
        self.numbered += 1;
        node.number = self.numbered;
        true
    }

    /// Adds links. Returns whether they are the first of their node.
    fn add_links(&mut self, node: NodeIndex, nlink: u32) -> bool {
        match self.nodes.entry(node) {
            Entry::Occupied(mut node) => {
                node.get_mut().nlink += nlink;
                false
            }
            Entry::Vacant(node) => {
                node.insert(WalkedNode { number: 0, nlink });
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewNode;

    fn file() -> NewNode {
        let content = Content::Bytes([7].into());
        NewNode::new(NodeKind::File { len: 1, content }, 0o644)
    }

    /// Returns a tree of `/a/b/deep`, `/a/inner`, `/z`, and a second name of `/z` in `/a/b`.
    fn tree() -> Tree {
        let mut tree = Tree::default();
        let z = tree.add(Tree::ROOT, b"z", file()).unwrap();
        let a = tree.add(Tree::ROOT, b"a", NewNode::directory()).unwrap();
        tree.add(a, b"inner", file()).unwrap();
        let b = tree.add(a, b"b", NewNode::directory()).unwrap();
        tree.add(b, b"deep", file()).unwrap();
        tree.link(b, b"linked", z).unwrap();
        tree
    }

    fn paths(walked: &WalkedTree<'_>) -> Vec<String> {
        let paths = walked.files.iter().map(|file| walked.file_path(file));
        paths.map(|path| String::from_utf8(path).unwrap()).collect()
    }

    #[test]
    fn files_are_in_the_order_of_a_walk_each_by_its_first_name() {
        let tree = tree();
        let mut walked = WalkedTree::new(&tree);
        assert_eq!(paths(&walked), ["a/b/deep", "a/b/linked", "a/inner"]);
        walked.sort_files(|path| std::cmp::Reverse(path.to_vec()));
        assert_eq!(paths(&walked), ["a/inner", "a/b/linked", "a/b/deep"]);
    }

    #[test]
    fn directories_are_listed_before_and_behind_the_directories_below_them() {
        let tree = tree();
        let walked = WalkedTree::new(&tree);
        let path = |dir: usize| String::from_utf8(walked.path(dir, b"")).unwrap();
        let down: Vec<_> = (0..walked.dirs.len()).map(path).collect();
        assert_eq!(down, ["", "a/", "a/b/"]);
        assert_eq!(walked.children_first, [2, 1, 0]);
        assert_eq!(walked.dir(0), (Tree::ROOT, Tree::ROOT));
        assert_eq!(walked.dir(2).1, walked.dirs[1].node);
    }

    #[test]
    fn links_are_counted_and_nodes_numbered_once() {
        let tree = tree();
        let mut walked = WalkedTree::new(&tree);
        let nlink = |node| walked.nodes.get(node).nlink;
        let dirs: Vec<_> = walked.dirs.iter().map(|dir| nlink(dir.node)).collect();
        assert_eq!(dirs, [3, 3, 2]);
        let files: Vec<_> = walked.files.iter().map(|file| nlink(file.node)).collect();
        assert_eq!(files, [1, 2, 1]);
        assert_eq!(walked.nodes.len(), 6);

        let (linked, root) = (walked.files[1].node, Tree::ROOT);
        for (node, is_new, number) in [(linked, true, 1), (linked, false, 1), (root, true, 2)] {
            assert_eq!(walked.nodes.number(node), is_new);
            assert_eq!(walked.nodes.get(node).number, number);
        }
    }
}
