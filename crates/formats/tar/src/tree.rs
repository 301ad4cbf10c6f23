//! The tree that an archive unpacks to: members in order, later ones in place of earlier ones.
//!
//! Names are in one arena, nodes in a table, and the entries of each directory in a sorted range of one
//! table. No symbolic link is followed: a member below one is left out.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use forerun_io::{saturating_usize, u64_from};
use forerun_vfs::{Bound, Device, Error, FileType, Held, Limits, NodeId, Result, check_name};

use crate::error::{Check, lossy};
use crate::node::{Extra, Node, directory};
use crate::parser::{Kind, Member};

/// Bytes that a node takes beside its name, in the builder's maps and in the tables.
const NODE_LEN: usize = size_of::<Node>() + 96;

/// A name in a directory.
#[derive(Clone, Debug)]
struct Entry {
    name: Range<usize>,
    node: usize,
}

/// The tree of an archive.
#[derive(Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    entries: Vec<Entry>,
    names: Vec<u8>,
}

/// The root's place in the table.
const ROOT: usize = 0;

/// Returns the id of a node: its place in the table, from 1.
fn id(node: usize) -> NodeId {
    NodeId(u64_from(node).saturating_add(1))
}

impl Tree {
    pub fn root(&self) -> NodeId {
        id(ROOT)
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Visits the hard links to files of other layers: each with the path of its file.
    pub fn links_below(&self, visit: &mut dyn FnMut(NodeId, &[u8])) {
        for (place, node) in self.nodes.iter().enumerate() {
            let below = node.extra.as_ref().and_then(|extra| extra.below.as_ref());
            if let Some(path) = below.filter(|_| node.nlink > 0) {
                visit(id(place), path);
            }
        }
    }

    pub fn has_xattrs(&self) -> bool {
        let mut extras = self.nodes.iter().filter_map(|node| node.extra.as_ref());
        extras.any(|extra| !extra.xattrs.is_empty())
    }

    /// Returns a node.
    ///
    /// # Errors
    /// `StaleNode`.
    pub fn node(&self, node: NodeId) -> Result<&Node> {
        let place = node.0.checked_sub(1).map(saturating_usize);
        let found = place.and_then(|place| self.nodes.get(place));
        found
            .filter(|found| found.nlink > 0)
            .ok_or(Error::StaleNode(node))
    }

    /// Returns the entries of a directory from the one at place `from`: name, node, kind.
    ///
    /// # Errors
    /// `StaleNode`, `NotADirectory`.
    pub fn entries(
        &self,
        dir: NodeId,
        from: u64,
    ) -> Result<impl Iterator<Item = (&[u8], NodeId, FileType)>> {
        let entries = self.range(dir)?;
        let entries = entries.get(saturating_usize(from)..).unwrap_or_default();
        Ok(entries.iter().map(|entry| {
            let kind = self.nodes.get(entry.node).map(|node| node.kind);
            let kind = kind.unwrap_or(FileType::Regular);
            (self.name(entry), id(entry.node), kind)
        }))
    }

    /// Returns the node of a name in a directory.
    ///
    /// # Errors
    /// `StaleNode`, `NotADirectory`.
    pub fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        let entries = self.range(dir)?;
        let found = entries.binary_search_by(|entry| self.name(entry).cmp(name));
        let found = found.ok().and_then(|found| entries.get(found));
        Ok(found.map(|entry| id(entry.node)))
    }

    fn range(&self, dir: NodeId) -> Result<&[Entry]> {
        let node = self.node(dir)?;
        match node.kind {
            FileType::Directory => Ok(self.entries.get(node.entries.clone()).unwrap_or_default()),
            _ => Err(Error::NotADirectory),
        }
    }

    fn name(&self, entry: &Entry) -> &[u8] {
        self.names.get(entry.name.clone()).unwrap_or_default()
    }
}

/// A tree while members are added.
pub struct Builder {
    nodes: Vec<Node>,
    children: HashMap<usize, BTreeMap<Box<[u8]>, usize>>,
    limits: Limits,
    held: Held,
    /// Whether the archive is a layer, whose hard links may name files of lower ones.
    is_layer: bool,
}

/// The node that a hard link names.
enum Target {
    File(usize),
    /// Nothing in this archive.
    Absent,
    /// A directory, or no path at all.
    Other,
}

impl Builder {
    pub fn new(limits: &Limits, is_layer: bool) -> Self {
        Self {
            is_layer,
            nodes: vec![directory()],
            children: HashMap::from([(ROOT, BTreeMap::new())]),
            limits: limits.clone(),
            held: Held::new(limits),
        }
    }

    /// Adds a member. Returns why it was left out, if it was.
    ///
    /// # Errors
    /// `Limit` if the tree would take too much memory, or is too deep.
    pub fn add(&mut self, mut member: Member) -> Result<Option<Check>> {
        let whole = std::mem::take(&mut member.path);
        let path = lossy(&whole);
        let components = match self.components(&whole)? {
            Ok(components) => components,
            Err(check) => return Ok(Some(check)),
        };
        let Some((name, parents)) = components.split_last() else {
            return Ok(match member.kind {
                Kind::Node(FileType::Directory) => {
                    self.set(ROOT, member)?;
                    None
                }
                Kind::Node(_) | Kind::HardLink => Some(Check::Root { path }),
            });
        };
        let linked = match member.kind {
            Kind::Node(_) => None,
            Kind::HardLink => match self.target(&member)? {
                Target::File(node) => Some(node),
                Target::Absent if self.is_layer => None,
                Target::Absent | Target::Other => {
                    let target = lossy(&member.link);
                    return Ok(Some(Check::Dangling { path, target }));
                }
            },
        };
        if member.kind == Kind::Node(FileType::Symlink) {
            let target = &member.link;
            let fits = u64_from(target.len()) <= self.limits.symlink_len;
            if target.is_empty() || target.contains(&0) || !fits {
                return Ok(Some(Check::Symlink { path }));
            }
        }
        let Some(parent) = self.parent(parents)? else {
            return Ok(Some(Check::Parent { path }));
        };
        self.place(parent, name, member, linked)?;
        Ok(None)
    }

    /// Puts a member at a name. A directory that was there is kept, all else is replaced.
    fn place(
        &mut self,
        parent: usize,
        name: &[u8],
        member: Member,
        linked: Option<usize>,
    ) -> Result<()> {
        let old = self.child(parent, name);
        let is_dir = member.kind == Kind::Node(FileType::Directory);
        match (old, linked) {
            (Some(old), _) if is_dir && self.is_dir(old) => return self.set(old, member),
            // A link to itself.
            (Some(old), Some(linked)) if old == linked => return Ok(()),
            (Some(old), _) => self.remove(old),
            (None, _) => self.bound(parent)?,
        }
        let node = match linked {
            Some(node) => {
                // The removal may have taken the file that the link names.
                if self.nodes.get(node).is_none_or(|node| node.nlink == 0) {
                    self.unlink(parent, name);
                    return Ok(());
                }
                self.count(node, 1);
                node
            }
            None => {
                let node = self.create(is_dir)?;
                self.set(node, member)?;
                node
            }
        };
        self.link(parent, name, node)
    }

    /// Splits a path. A slash at the start counts as nothing.
    fn components<'p>(&self, path: &'p [u8]) -> Result<Result<Vec<&'p [u8]>, Check>> {
        let mut components = Vec::new();
        for name in path.split(|&byte| byte == b'/') {
            match name {
                b"" | b"." => continue,
                b".." => return Ok(Err(Check::Climbs { path: lossy(path) })),
                name => components.push(name),
            }
            if let Err(source) = check_name(name, self.limits.name_len) {
                let path = lossy(path);
                return Ok(Err(Check::Name { path, source }));
            }
            if components.len() > self.limits.depth {
                let limit = u64_from(self.limits.depth);
                return Err(Error::limit(Bound::Depth, "depth of the tree", limit));
            }
        }
        Ok(Ok(components))
    }

    /// Returns the file that a hard link names.
    fn target(&self, member: &Member) -> Result<Target> {
        let Ok(components) = self.components(&member.link)? else {
            return Ok(Target::Other);
        };
        let mut node = ROOT;
        for name in components {
            match self.child(node, name) {
                Some(child) => node = child,
                None => return Ok(Target::Absent),
            }
        }
        Ok(match self.is_dir(node) {
            true => Target::Other,
            false => Target::File(node),
        })
    }

    /// Returns the directory of a path, with those created that are missing. Returns nothing if
    /// something on the way is no directory.
    fn parent(&mut self, names: &[&[u8]]) -> Result<Option<usize>> {
        let mut node = ROOT;
        for name in names {
            node = match self.child(node, name) {
                Some(child) if self.is_dir(child) => child,
                Some(_) => return Ok(None),
                None => {
                    self.bound(node)?;
                    let child = self.create(true)?;
                    self.link(node, name, child)?;
                    child
                }
            };
        }
        Ok(Some(node))
    }

    fn child(&self, dir: usize, name: &[u8]) -> Option<usize> {
        self.children.get(&dir)?.get(name).copied()
    }

    fn is_dir(&self, node: usize) -> bool {
        let node = self.nodes.get(node);
        node.is_some_and(|node| node.kind == FileType::Directory)
    }

    fn create(&mut self, is_dir: bool) -> Result<usize> {
        let count = u64_from(self.nodes.len());
        if count >= self.limits.tree_entries {
            let limit = self.limits.tree_entries;
            return Err(Error::limit(Bound::Entries, "entries of the tree", limit));
        }
        self.held.add(NODE_LEN)?;
        let node = self.nodes.len();
        self.nodes.push(directory());
        if is_dir {
            self.held.add(96)?;
            self.children.insert(node, BTreeMap::new());
        }
        Ok(node)
    }

    /// Refuses one more entry in a directory that has the most it may have.
    fn bound(&self, dir: usize) -> Result<()> {
        let count = self.children.get(&dir).map_or(0, BTreeMap::len);
        let limit = self.limits.dir_entries;
        match u64_from(count) < limit {
            true => Ok(()),
            false => Err(Error::limit(
                Bound::Entries,
                "entries of a directory",
                limit,
            )),
        }
    }

    fn link(&mut self, dir: usize, name: &[u8], node: usize) -> Result<()> {
        let Some(children) = self.children.get_mut(&dir) else {
            return Ok(());
        };
        match children.insert(name.into(), node) {
            // The name has been counted.
            Some(_) => Ok(()),
            None => self.held.add(name_len(name)),
        }
    }

    fn unlink(&mut self, dir: usize, name: &[u8]) {
        let children = self.children.get_mut(&dir);
        if children.is_some_and(|children| children.remove(name).is_some()) {
            self.held.free(name_len(name));
        }
    }

    fn count(&mut self, node: usize, by: i32) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.nlink = node.nlink.saturating_add_signed(by);
        }
    }

    /// Removes one name of a node, and all that is below it.
    fn remove(&mut self, node: usize) {
        let mut left = vec![node];
        while let Some(node) = left.pop() {
            self.count(node, -1);
            for (name, child) in self.children.remove(&node).into_iter().flatten() {
                self.held.free(name_len(&name));
                left.push(child);
            }
            let gone = self.nodes.get_mut(node).filter(|node| node.nlink == 0);
            if let Some(extra) = gone.and_then(|node| node.extra.take()) {
                self.held.free(extra.len());
            }
        }
    }

    fn set(&mut self, node: usize, member: Member) -> Result<()> {
        let Some(node) = self.nodes.get_mut(node) else {
            return Ok(());
        };
        let is_link = member.kind == Kind::HardLink;
        node.kind = match member.kind {
            Kind::Node(kind) => kind,
            Kind::HardLink => FileType::Regular,
        };
        node.header = Some(member.header);
        node.mode = member.mode;
        node.uid = member.uid;
        node.gid = member.gid;
        node.mtime = member.mtime;
        node.size = member.size;
        node.data = member.data;
        let mut extra = Extra {
            device: member.device,
            pieces: member.pieces,
            xattrs: member.xattrs,
            target: Vec::new(),
            below: is_link.then(|| member.link.clone()),
        };
        if node.kind == FileType::Symlink {
            node.size = u64_from(member.link.len());
            extra.target = member.link;
        }
        let is_empty = extra.target.is_empty()
            && extra.device == Device::default()
            && extra.pieces.is_none()
            && extra.below.is_none()
            && extra.xattrs.is_empty();
        if let Some(old) = node.extra.take() {
            self.held.free(old.len());
        }
        if !is_empty {
            self.held.add(extra.len())?;
            node.extra = Some(Box::new(extra));
        }
        Ok(())
    }

    /// Puts the entries of all directories into one table.
    pub fn finish(mut self) -> Tree {
        let (mut entries, mut names) = (Vec::new(), Vec::new());
        for (place, node) in self.nodes.iter_mut().enumerate() {
            let Some(children) = self.children.remove(&place) else {
                continue;
            };
            let first = entries.len();
            for (name, child) in children {
                let start = names.len();
                names.extend_from_slice(&name);
                let name = start..names.len();
                entries.push(Entry { name, node: child });
            }
            node.entries = first..entries.len();
            // Its name, and `.` in it.
            node.nlink = 2;
        }
        count_directories(&mut self.nodes, &entries);
        self.nodes.shrink_to_fit();
        Tree {
            nodes: self.nodes,
            entries,
            names,
        }
    }
}

/// Counts each directory among the links of its parent, as filesystems do for `..`.
fn count_directories(nodes: &mut [Node], entries: &[Entry]) {
    let mut counts = vec![0u32; nodes.len()];
    for (node, count) in nodes.iter().zip(&mut counts) {
        for entry in entries.get(node.entries.clone()).unwrap_or_default() {
            let child = nodes.get(entry.node);
            if child.is_some_and(|child| child.kind == FileType::Directory) {
                *count = count.saturating_add(1);
            }
        }
    }
    for (node, count) in nodes.iter_mut().zip(counts) {
        node.nlink = node.nlink.saturating_add(count);
    }
}

/// Returns the bytes that a name takes: in the builder's map, and in the tables of the tree.
const fn name_len(name: &[u8]) -> usize {
    name.len().saturating_mul(2).saturating_add(64)
}
