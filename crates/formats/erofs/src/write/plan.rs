//! The plan of an image: the order of everything, before anything is written.
//!
//! Directories are entered where a walk meets them, with names in byte order, as `ls -lR` and
//! `find` do. Inodes lie directory by directory in that order, so that such a walk reads
//! sequentially. Data lie in the same order unless another one is given.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use forerun_build::{BuildError, Content, NodeIndex, NodeKind, Order, Tree, Unreadable};

use super::cannot;

/// The longest name Linux looks up.
const LONGEST_NAME: usize = 255;
/// The longest target Linux follows.
const LONGEST_TARGET: usize = 4095;

pub struct Plan<'t> {
    /// Directories in the order of a walk; the root is the first.
    pub dirs: Vec<Dir<'t>>,
    /// Nodes in the order of their inodes: the root, then the children of each directory that were
    /// not met before.
    pub inodes: Vec<NodeIndex>,
    /// Regular files that are not empty in the order of their data, each once.
    pub files: Vec<PlannedFile<'t>>,
    nodes: HashMap<NodeIndex, PlannedNode>,
}

pub struct Dir<'t> {
    pub node: NodeIndex,
    /// Index of its parent; the root is its own parent.
    pub parent: usize,
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
    /// Number from 1, in the order of the inodes.
    pub number: u32,
    /// Number of names; for a directory two, and one for each of its subdirectories.
    pub nlink: u32,
}

impl<'t> Plan<'t> {
    pub fn new(tree: &'t Tree, order: &Order) -> Result<Self, BuildError> {
        let mut plan = Self {
            dirs: Vec::new(),
            inodes: Vec::new(),
            files: Vec::new(),
            nodes: HashMap::new(),
        };
        plan.walk(tree);
        plan.number(tree)?;
        plan.check(tree)?;
        if !order.is_empty() {
            let mut files = std::mem::take(&mut plan.files);
            files.sort_by_cached_key(|file| order.of(&plan.file_path(file)));
            plan.files = files;
        }
        Ok(plan)
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

    fn path(&self, dir: usize, name: &[u8]) -> Vec<u8> {
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
        self.enter(Tree::ROOT, 0, b"");
        let mut pending = vec![(0, tree.children(Tree::ROOT))];
        while let Some((dir, children)) = pending.last_mut() {
            let dir = *dir;
            let Some((name, node)) = children.next() else {
                pending.pop();
                continue;
            };
            match &tree.node(node).kind {
                NodeKind::Directory(_) => {
                    let parent = self.dirs.get(dir).map_or(Tree::ROOT, |dir| dir.node);
                    self.count_link(parent, 1);
                    pending.push((self.dirs.len(), tree.children(node)));
                    self.enter(node, dir, name);
                }
                NodeKind::File { len, content } => {
                    if self.count_link(node, 1) && *len > 0 {
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

    fn enter(&mut self, node: NodeIndex, parent: usize, name: &'t [u8]) {
        self.count_link(node, 2);
        self.dirs.push(Dir { node, parent, name });
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
        if u32::try_from(self.nodes.len()).is_err() {
            return Err(cannot(format!("{} inodes", self.nodes.len())));
        }
        self.inodes.reserve(self.nodes.len());
        let dirs = std::mem::take(&mut self.dirs);
        let children = dirs.iter().flat_map(|dir| tree.children(dir.node));
        for node in std::iter::once(Tree::ROOT).chain(children.map(|(_, node)| node)) {
            let next = u32::try_from(self.inodes.len()).unwrap_or(0) + 1;
            if let Some(planned) = self.nodes.get_mut(&node).filter(|node| node.number == 0) {
                planned.number = next;
                self.inodes.push(node);
            }
        }
        self.dirs = dirs;
        Ok(())
    }

    /// Refuses a tree that the format, or every reader of it, cannot hold, before anything is
    /// written.
    fn check(&self, tree: &Tree) -> Result<(), BuildError> {
        for (at, dir) in self.dirs.iter().enumerate() {
            for (name, node) in tree.children(dir.node) {
                if let Some(reason) = unfit(name, &tree.node(node).kind) {
                    let path = self.path(at, name);
                    let path = String::from_utf8_lossy(&path);
                    return Err(cannot(format!("{path}: {reason}")));
                }
            }
        }
        Ok(())
    }
}

fn unfit(name: &[u8], kind: &NodeKind) -> Option<String> {
    if name.len() > LONGEST_NAME {
        return Some(format!("a name of {} bytes", name.len()));
    }
    match kind {
        NodeKind::Symlink(target) if !(1..=LONGEST_TARGET).contains(&target.len()) => {
            Some(format!("a link to {} bytes", target.len()))
        }
        NodeKind::BlockDevice(device) | NodeKind::CharDevice(device) if device.pack().is_none() => {
            let (major, minor) = (device.major, device.minor);
            Some(format!("the device number {major}:{minor}"))
        }
        _ => None,
    }
}
