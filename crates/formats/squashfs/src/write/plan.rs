//! The plan of an image: the order of everything, before anything is written.
//!
//! Unless priorities change it, data lie in the order of a walk that takes the names of each
//! directory in byte order and enters directories where it meets them: files that are read together
//! lie together. Inodes lie directory by directory, so that a listing with details touches few
//! blocks and few runs of entries are cut.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use forerun_build::{BuildError, Content, NodeIndex, NodeKind, Tree, Unreadable};

use super::cannot;
use super::options::SquashfsOptions;

pub struct Plan<'t> {
    /// Directories; the root is the first.
    dirs: Vec<Dir<'t>>,
    /// Directories by their index above, in the order of their listings: lower directories come
    /// first, so that all inodes named by a listing have their places.
    pub listings: Vec<usize>,
    /// Regular files in the order of their data, each once.
    pub files: Vec<PlannedFile<'t>>,
    /// Numbers and link counts.
    pub nodes: HashMap<NodeIndex, PlannedNode>,
    /// Number of inodes, which is also the number of the root.
    pub inodes: u32,
}

struct Dir<'t> {
    node: NodeIndex,
    parent: usize,
    name: &'t [u8],
}

#[derive(Clone, Copy)]
pub struct PlannedFile<'t> {
    pub node: NodeIndex,
    pub len: u64,
    pub content: &'t Content,
    dir: usize,
    name: &'t [u8],
}

#[derive(Clone, Copy, Default)]
pub struct PlannedNode {
    /// Number from 1; 0 until it is known.
    pub number: u32,
    /// Number of names; for a directory two, and one for each of its subdirectories.
    pub nlink: u32,
}

impl<'t> Plan<'t> {
    pub fn new(tree: &'t Tree, options: &SquashfsOptions) -> Result<Self, BuildError> {
        let mut plan = Self {
            dirs: Vec::new(),
            listings: Vec::new(),
            files: Vec::new(),
            nodes: HashMap::new(),
            inodes: 0,
        };
        plan.walk(tree);
        plan.number(tree)?;
        plan.sort(options);
        Ok(plan)
    }

    /// Returns a directory and its parent; the root is its own parent.
    pub fn dir(&self, dir: usize) -> (NodeIndex, NodeIndex) {
        let node = |dir: usize| self.dirs.get(dir).map_or(Tree::ROOT, |dir| dir.node);
        let parent = self.dirs.get(dir).map_or(0, |dir| dir.parent);
        (node(dir), node(parent))
    }

    /// Returns the plan for a node of the tree.
    pub fn node(&self, node: NodeIndex) -> PlannedNode {
        self.nodes.get(&node).copied().unwrap_or_default()
    }

    /// Returns the path of a file, by the name under which it was met first.
    pub fn file_path(&self, file: &PlannedFile<'_>) -> Vec<u8> {
        self.path(file.dir, file.name)
    }

    /// Creates the error about a file that differs from its scan.
    pub fn unreadable(&self, file: &PlannedFile<'_>, reason: Unreadable) -> BuildError {
        reason.of(self.file_path(file), file.len)
    }

    /// Returns the path of `name` in a directory.
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

    /// Finds directories, files and link counts. It does not recurse: a tree may have any depth.
    fn walk(&mut self, tree: &'t Tree) {
        self.dirs.push(Dir {
            node: Tree::ROOT,
            parent: 0,
            name: b"",
        });
        self.count_link(Tree::ROOT, 2);
        let mut pending = vec![(0, tree.children(Tree::ROOT))];
        while let Some((dir, children)) = pending.last_mut() {
            let dir = *dir;
            let Some((name, node)) = children.next() else {
                self.listings.push(dir);
                pending.pop();
                continue;
            };
            match &tree.node(node).kind {
                NodeKind::Directory(_) => {
                    self.count_link(node, 2);
                    let parent = self.dir(dir).0;
                    self.count_link(parent, 1);
                    pending.push((self.dirs.len(), tree.children(node)));
                    self.dirs.push(Dir {
                        node,
                        parent: dir,
                        name,
                    });
                }
                NodeKind::File { len, content } => {
                    if self.count_link(node, 1) {
                        self.files.push(PlannedFile {
                            node,
                            len: *len,
                            content,
                            dir,
                            name,
                        });
                    }
                }
                _ => {
                    self.count_link(node, 1);
                }
            }
        }
    }

    /// Counts a link. Returns whether it is the first of its node.
    fn count_link(&mut self, node: NodeIndex, links: u32) -> bool {
        match self.nodes.entry(node) {
            Entry::Occupied(mut node) => {
                node.get_mut().nlink = node.get().nlink.saturating_add(links);
                false
            }
            Entry::Vacant(node) => {
                node.insert(PlannedNode {
                    number: 0,
                    nlink: links,
                });
                true
            }
        }
    }

    fn number(&mut self, tree: &Tree) -> Result<(), BuildError> {
        // The number after the last is the parent of the root.
        if u32::try_from(self.nodes.len()).is_ok_and(|len| len < u32::MAX - 1) {
            self.inodes = u32::try_from(self.nodes.len()).unwrap_or(0);
        } else {
            return Err(cannot(format!("{} inodes", self.nodes.len())));
        }
        let mut next = 1;
        let listings = std::mem::take(&mut self.listings);
        for &dir in &listings {
            for (_, node) in tree.children(self.dir(dir).0) {
                self.number_node(node, &mut next);
            }
        }
        self.listings = listings;
        self.number_node(Tree::ROOT, &mut next);
        Ok(())
    }

    fn number_node(&mut self, node: NodeIndex, next: &mut u32) {
        if let Some(node) = self.nodes.get_mut(&node).filter(|node| node.number == 0) {
            node.number = *next;
            *next += 1;
        }
    }

    fn sort(&mut self, options: &SquashfsOptions) {
        if options.priorities.is_empty() {
            return;
        }
        let mut files = std::mem::take(&mut self.files);
        files.sort_by_cached_key(|file| {
            let path = self.file_path(file);
            std::cmp::Reverse(options.priorities.of(&path))
        });
        self.files = files;
    }
}
