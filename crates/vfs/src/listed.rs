//! Trees of formats that list the paths of their members, as archives do.
//!
//! All names are in one arena, nodes in a table, and the entries of each directory in a sorted
//! range of another table. The driver decides which member wins at a path: it builds the tree with
//! a [`ListedBuilder`].

use std::collections::{BTreeMap, HashMap};
use std::ops::{ControlFlow, Deref, DerefMut, Range};

use forerun_io::{u64_from, usize_from};

use crate::{
    Bound, DirCursor, DirEntry, Error, FileType, Held, Limits, NameError, NodeId, Result,
    check_name,
};

const ROOT: usize = 0;

/// Returns the id of the node at an index: the index plus 1.
fn id(place: usize) -> NodeId {
    NodeId(u64_from(place) + 1)
}

/// A node of a tree, with the driver's own data.
#[derive(Clone, Debug)]
pub struct Listed<N> {
    pub kind: FileType,
    /// Number of names; for a directory, two plus its subdirectories. 0 for a node that is not in
    /// the tree.
    pub nlink: u32,
    /// Entries of a directory, as a range of the tree's table.
    entries: Range<usize>,
    node: N,
}

impl<N> Listed<N> {
    const fn new(kind: FileType, node: N) -> Self {
        Self {
            kind,
            nlink: 1,
            entries: 0..0,
            node,
        }
    }
}

impl<N> Deref for Listed<N> {
    type Target = N;

    fn deref(&self) -> &N {
        &self.node
    }
}

impl<N> DerefMut for Listed<N> {
    fn deref_mut(&mut self) -> &mut N {
        &mut self.node
    }
}

#[derive(Clone, Debug)]
struct ListedEntry {
    name: Range<usize>,
    place: usize,
}

#[derive(Debug)]
pub struct ListedTree<N> {
    nodes: Vec<Listed<N>>,
    entries: Vec<ListedEntry>,
    names: Vec<u8>,
}

impl<N> ListedTree<N> {
    #[must_use]
    pub fn root(&self) -> NodeId {
        id(ROOT)
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the nodes that have names.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Listed<N>)> {
        let nodes = self.nodes.iter().enumerate();
        let named = nodes.filter(|(_, node)| node.nlink > 0);
        named.map(|(place, node)| (id(place), node))
    }

    pub fn node(&self, node: NodeId) -> Result<&Listed<N>> {
        let place = node.0.checked_sub(1).map(usize_from);
        let found = place.and_then(|place| self.nodes.get(place));
        found
            .filter(|found| found.nlink > 0)
            .ok_or(Error::StaleNode(node))
    }

    /// Looks up a name in a directory, for [`FileSystem::lookup`](crate::FileSystem::lookup).
    ///
    /// # Errors
    /// [`Error::StaleNode`], [`Error::NotADirectory`].
    pub fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        let entries = self.entries(dir)?;
        let found = entries.binary_search_by(|entry| self.name(entry).cmp(name));
        let found = found.ok().and_then(|found| entries.get(found));
        Ok(found.map(|entry| id(entry.place)))
    }

    /// Visits the entries of a directory in the order of their names, for
    /// [`FileSystem::read_dir`](crate::FileSystem::read_dir). The cursor is the number of entries
    /// before it.
    ///
    /// # Errors
    /// [`Error::StaleNode`], [`Error::NotADirectory`].
    pub fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let entries = self.entries(dir)?;
        // A cursor comes from the caller and may be past the end.
        let Some(entries) = entries.get(usize_from(from.0)..) else {
            return Ok(());
        };
        for (next, entry) in (from.0 + 1..).zip(entries) {
            let entry = DirEntry {
                name: self.name(entry),
                node: id(entry.place),
                kind: self.nodes[entry.place].kind,
                next: DirCursor(next),
            };
            if visit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn entries(&self, dir: NodeId) -> Result<&[ListedEntry]> {
        let node = self.node(dir)?;
        match node.kind {
            FileType::Directory => Ok(&self.entries[node.entries.clone()]),
            _ => Err(Error::NotADirectory),
        }
    }

    fn name(&self, entry: &ListedEntry) -> &[u8] {
        &self.names[entry.name.clone()]
    }
}

/// Why a path cannot be in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathRefused {
    /// The path contains `..`.
    Climbs,
    /// The path contains a name that no directory can have.
    Name(NameError),
}

/// The index of a node in a tree that is being built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedPlace(usize);

impl ListedPlace {
    pub const ROOT: Self = Self(ROOT);
}

/// A tree that is being built. Its memory is bounded by [`Limits::walk_bytes`], its size by the
/// other limits of trees.
pub struct ListedBuilder<N> {
    nodes: Vec<Listed<N>>,
    children: HashMap<usize, BTreeMap<Box<[u8]>, usize>>,
    limits: Limits,
    /// The memory of the tree. The driver adds what its own data takes.
    pub held: Held,
    /// The driver's data for directories that only paths name.
    implied: N,
}

impl<N: Clone> ListedBuilder<N> {
    /// Bytes that a node takes in addition to its name, in the builder's maps and in the tables.
    const NODE_LEN: usize = size_of::<Listed<N>>() + 96;

    /// Creates a tree with only the root. The root, and directories that only appear in paths, get
    /// `implied` as their data.
    #[must_use]
    pub fn new(limits: &Limits, implied: N) -> Self {
        Self {
            nodes: vec![Listed::new(FileType::Directory, implied.clone())],
            children: HashMap::from([(ROOT, BTreeMap::new())]),
            limits: limits.clone(),
            held: Held::new(limits),
            implied,
        }
    }

    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Splits a path. Ignores a leading slash, `.` and empty names.
    ///
    /// # Errors
    /// [`Error::Limit`] if the path is too deep.
    pub fn components<'p>(
        &self,
        path: &'p [u8],
    ) -> Result<std::result::Result<Vec<&'p [u8]>, PathRefused>> {
        let mut components = Vec::new();
        for name in path.split(|&byte| byte == b'/') {
            match name {
                b"" | b"." => continue,
                b".." => return Ok(Err(PathRefused::Climbs)),
                name => components.push(name),
            }
            if let Err(refused) = check_name(name, self.limits.name_len) {
                return Ok(Err(PathRefused::Name(refused)));
            }
            if components.len() > self.limits.depth {
                let limit = u64_from(self.limits.depth);
                return Err(Error::limit(Bound::Depth, "depth of the tree", limit));
            }
        }
        Ok(Ok(components))
    }

    /// Returns the node at a path, if any. Follows no symbolic links.
    #[must_use]
    pub fn find(&self, components: &[&[u8]]) -> Option<ListedPlace> {
        let mut place = ListedPlace::ROOT;
        for name in components {
            place = self.child(place, name)?;
        }
        Some(place)
    }

    /// Returns the directory at a path, and creates the missing directories. Returns `None` if a
    /// component is not a directory.
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub fn directory(&mut self, names: &[&[u8]]) -> Result<Option<ListedPlace>> {
        let mut place = ListedPlace::ROOT;
        for name in names {
            place = match self.child(place, name) {
                Some(child) if self.is_dir(child) => child,
                Some(_) => return Ok(None),
                None => {
                    self.reserve(place)?;
                    let child = self.create(FileType::Directory)?;
                    self.link(place, name, child)?;
                    child
                }
            };
        }
        Ok(Some(place))
    }

    #[must_use]
    pub fn child(&self, dir: ListedPlace, name: &[u8]) -> Option<ListedPlace> {
        let child = self.children.get(&dir.0)?.get(name);
        child.copied().map(ListedPlace)
    }

    pub fn get_mut(&mut self, place: ListedPlace) -> Option<&mut Listed<N>> {
        self.nodes.get_mut(place.0)
    }

    #[must_use]
    pub fn is_dir(&self, place: ListedPlace) -> bool {
        let node = self.nodes.get(place.0);
        node.is_some_and(|node| node.kind == FileType::Directory)
    }

    /// Returns whether a node is a directory with entries.
    #[must_use]
    pub fn has_children(&self, place: ListedPlace) -> bool {
        let children = self.children.get(&place.0);
        children.is_some_and(|children| !children.is_empty())
    }

    /// Creates a node without a name, with the data of an implied directory.
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub fn create(&mut self, kind: FileType) -> Result<ListedPlace> {
        let limit = self.limits.tree_entries;
        if u64_from(self.nodes.len()) >= limit {
            return Err(Error::limit(Bound::Entries, "entries of the tree", limit));
        }
        self.held.add(Self::NODE_LEN)?;
        let place = self.nodes.len();
        self.nodes.push(Listed::new(kind, self.implied.clone()));
        if kind == FileType::Directory {
            self.held.add(96)?;
            self.children.insert(place, BTreeMap::new());
        }
        Ok(ListedPlace(place))
    }

    /// Checks that a directory may have one more entry.
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub fn reserve(&self, dir: ListedPlace) -> Result<()> {
        let count = self.children.get(&dir.0).map_or(0, BTreeMap::len);
        let limit = self.limits.dir_entries;
        if u64_from(count) < limit {
            Ok(())
        } else {
            Err(Error::limit(
                Bound::Entries,
                "entries of a directory",
                limit,
            ))
        }
    }

    /// Gives a node a name. Replaces the node that has this name.
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub fn link(&mut self, dir: ListedPlace, name: &[u8], place: ListedPlace) -> Result<()> {
        let Some(children) = self.children.get_mut(&dir.0) else {
            return Ok(());
        };
        match children.insert(name.into(), place.0) {
            // The name is counted already.
            Some(_) => Ok(()),
            None => self.held.add(name_len(name)),
        }
    }

    pub fn unlink(&mut self, dir: ListedPlace, name: &[u8]) {
        let children = self.children.get_mut(&dir.0);
        if children.is_some_and(|children| children.remove(name).is_some()) {
            self.held.free(name_len(name));
        }
    }

    /// Decrements the link count of a node, and removes all names below it. Returns the nodes that
    /// have lost their last name.
    pub fn remove(&mut self, place: ListedPlace) -> Vec<ListedPlace> {
        let (mut left, mut gone) = (vec![place], Vec::new());
        while let Some(place) = left.pop() {
            for (name, child) in self.children.remove(&place.0).into_iter().flatten() {
                self.held.free(name_len(&name));
                left.push(ListedPlace(child));
            }
            if let Some(node) = self.nodes.get_mut(place.0) {
                node.nlink -= 1;
                if node.nlink == 0 {
                    gone.push(place);
                }
            }
        }
        gone
    }

    /// Moves the entries of all directories into one table.
    #[must_use]
    pub fn finish(mut self) -> ListedTree<N> {
        let (mut entries, mut names) = (Vec::new(), Vec::new());
        for (place, node) in self.nodes.iter_mut().enumerate() {
            let Some(children) = self.children.remove(&place) else {
                continue;
            };
            let first = entries.len();
            for (name, place) in children {
                let start = names.len();
                names.extend_from_slice(&name);
                let name = start..names.len();
                entries.push(ListedEntry { name, place });
            }
            node.entries = first..entries.len();
            // One link for its name, and one for `.` in it.
            node.nlink = 2;
        }
        count_directories(&mut self.nodes, &entries);
        self.nodes.shrink_to_fit();
        ListedTree {
            nodes: self.nodes,
            entries,
            names,
        }
    }
}

/// Adds each directory to the link count of its parent, as filesystems do for `..`.
fn count_directories<N>(nodes: &mut [Listed<N>], entries: &[ListedEntry]) {
    let mut counts = vec![0u32; nodes.len()];
    for (node, count) in nodes.iter().zip(&mut counts) {
        for entry in &entries[node.entries.clone()] {
            if nodes[entry.place].kind == FileType::Directory {
                *count += 1;
            }
        }
    }
    for (node, count) in nodes.iter_mut().zip(counts) {
        node.nlink += count;
    }
}

/// Returns the bytes that a name takes, in the builder's map and in the tables of the tree.
const fn name_len(name: &[u8]) -> usize {
    name.len() * 2 + 64
}
