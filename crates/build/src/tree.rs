//! The tree of nodes that a writer lays out.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use forerun_sys::memory_limit::{MemoryLimit, Mib};
use forerun_vfs::{Device, NameError, Timestamp, check_name};

use super::{Content, LineError};

/// Identifies a node of a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(usize);

impl NodeIndex {
    /// Returns the node's position. Nodes that are added later have higher positions.
    pub(super) const fn position(self) -> usize {
        self.0
    }
}

/// The kind of a node, with its contents.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// A directory: its names in byte order, and their nodes.
    Directory(BTreeMap<Vec<u8>, NodeIndex>),
    File {
        len: u64,
        content: Content,
    },
    Symlink(Vec<u8>),
    BlockDevice(Device),
    CharDevice(Device),
    Fifo,
    Socket,
}

/// A node to be written. Several names of one node are hard links.
#[derive(Clone, Debug)]
pub struct NewNode {
    pub kind: NodeKind,
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Timestamp,
    /// Extended attributes by full name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl NewNode {
    /// Returns an empty directory of mode 0755, owned by root, with the epoch as its time.
    #[must_use]
    pub const fn directory() -> Self {
        Self::new(NodeKind::Directory(BTreeMap::new()), 0o755)
    }

    /// Returns a node owned by root, with the epoch as its time.
    #[must_use]
    pub const fn new(kind: NodeKind, mode: u16) -> Self {
        let mtime = Timestamp {
            seconds: 0,
            nanoseconds: 0,
        };
        Self {
            kind,
            mode,
            uid: 0,
            gid: 0,
            mtime,
            xattrs: BTreeMap::new(),
        }
    }
}

/// The reason why an input cannot become an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A file or directory of the host could not be read.
    #[error("{}: {source}", path.display())]
    Host { path: PathBuf, source: io::Error },
    /// An invalid line of a manifest, a priority list or a similar file.
    #[error("{}:{line}: {source}", file.display())]
    Line {
        file: PathBuf,
        /// Number of the line, from 1.
        line: u64,
        source: LineError,
    },
    /// The image that the tree comes from could not be read.
    #[error("/{}: {source}", String::from_utf8_lossy(path))]
    Image {
        /// The location, as a path in the image.
        path: Vec<u8>,
        source: forerun_vfs::Error,
    },
    /// A name that no image can store.
    #[error("{}: {source}", String::from_utf8_lossy(path))]
    Name {
        /// The full path.
        path: Vec<u8>,
        source: NameError,
    },
    /// Two entries with the same path that cannot share it, or a contradictory entry.
    #[error("{}: {reason}", String::from_utf8_lossy(path))]
    Conflict { path: Vec<u8>, reason: &'static str },
    /// An invalid pattern.
    #[error("pattern {pattern:?}: {reason}")]
    Pattern { pattern: String, reason: String },
    /// The format cannot store this tree.
    #[error("{format} cannot hold this tree: {reason}")]
    Format {
        format: &'static str,
        /// The part that cannot be stored, with the numbers.
        reason: String,
    },
    /// The contents of a file could not be read while the image was written, or had changed.
    #[error("{}: {reason}", String::from_utf8_lossy(path))]
    Content {
        /// Path on the host if the file is there, otherwise path in the tree.
        path: Vec<u8>,
        reason: String,
    },
    /// The encoder does not fit into the memory that this process may use.
    #[error(
        "one {codec} encoder needs {} in addition to {}: more than four fifths of the limit of {limit}",
        Mib(*encoder), Mib(*beside)
    )]
    Memory {
        codec: &'static str,
        /// Bytes that one encoder needs.
        encoder: u64,
        /// Other bytes that the writer needs.
        beside: u64,
        /// The memory that the process may use.
        limit: MemoryLimit,
    },
    /// A thread of the writer could not be started, or failed.
    #[error("a thread of the writer: {source}")]
    Thread { source: io::Error },
    /// The output could not be written.
    #[error("writing the image at offset {offset}: {source}")]
    Output {
        /// Number of bytes written before.
        offset: u64,
        source: io::Error,
    },
}

impl BuildError {
    /// Replaces the tree path of a host file by its path on the host.
    #[must_use]
    pub fn of_host(self, tree: &Tree) -> Self {
        let Self::Content { path, reason } = self else {
            return self;
        };
        let mut names = path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty());
        let found = names.try_fold(Tree::ROOT, |at, name| tree.child(at, name));
        let path = match found.map(|index| &tree.node(index).kind) {
            Some(NodeKind::File {
                content: Content::Host(file),
                ..
            }) => file.path().into_os_string().into_vec(),
            _ => path,
        };
        Self::Content { path, reason }
    }
}

/// Nodes and names. The root always exists and is a directory.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<NewNode>,
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            nodes: vec![NewNode::directory()],
        }
    }
}

impl Tree {
    pub const ROOT: NodeIndex = NodeIndex(0);

    #[must_use]
    pub fn node(&self, index: NodeIndex) -> &NewNode {
        // An index exists only because this tree returned it, and nodes are never removed.
        &self.nodes[index.0]
    }

    pub fn node_mut(&mut self, index: NodeIndex) -> &mut NewNode {
        &mut self.nodes[index.0]
    }

    /// Returns all nodes, including nodes that lost their last name.
    pub fn nodes(&self) -> impl Iterator<Item = &NewNode> {
        self.nodes.iter()
    }

    /// Returns all nodes mutably, including nodes that lost their last name.
    pub fn nodes_mut(&mut self) -> impl Iterator<Item = &mut NewNode> {
        self.nodes.iter_mut()
    }

    /// Frees memory that was allocated for more nodes.
    pub fn shrink_to_fit(&mut self) {
        self.nodes.shrink_to_fit();
    }

    /// Returns the number of nodes with the root. Nodes that lost their last name still count.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether the root is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.children(Self::ROOT).next().is_none()
    }

    /// Returns the entries of a directory in byte order of their names; none if `dir` is not a
    /// directory.
    pub fn children(&self, dir: NodeIndex) -> impl DoubleEndedIterator<Item = (&[u8], NodeIndex)> {
        let entries = match &self.node(dir).kind {
            NodeKind::Directory(entries) => Some(entries),
            _ => None,
        };
        entries
            .into_iter()
            .flatten()
            .map(|(name, &index)| (name.as_slice(), index))
    }

    /// Returns the node with this name in a directory.
    #[must_use]
    pub fn child(&self, dir: NodeIndex, name: &[u8]) -> Option<NodeIndex> {
        match &self.node(dir).kind {
            NodeKind::Directory(entries) => entries.get(name).copied(),
            _ => None,
        }
    }

    /// Adds a node under a new name.
    ///
    /// # Errors
    /// [`BuildError::Name`] and [`BuildError::Conflict`], both with `name` as the path. A NUL byte
    /// in a link target or an attribute name is a conflict, because readers refuse it.
    pub fn add(
        &mut self,
        dir: NodeIndex,
        name: &[u8],
        node: NewNode,
    ) -> Result<NodeIndex, BuildError> {
        if let Some(reason) = broken(&node) {
            return Err(BuildError::Conflict {
                path: name.to_vec(),
                reason,
            });
        }
        let index = NodeIndex(self.nodes.len());
        self.insert(dir, name, index)?;
        self.nodes.push(node);
        Ok(index)
    }

    /// Adds another name for a node. Fails like [`add`](Self::add), and for a hard link to a
    /// directory.
    pub fn link(
        &mut self,
        dir: NodeIndex,
        name: &[u8],
        target: NodeIndex,
    ) -> Result<(), BuildError> {
        if matches!(self.node(target).kind, NodeKind::Directory(_)) {
            return Err(BuildError::Conflict {
                path: name.to_vec(),
                reason: "hard link to a directory",
            });
        }
        self.insert(dir, name, target)
    }

    /// Removes a name. The node stays as long as it has other names.
    pub fn unlink(&mut self, dir: NodeIndex, name: &[u8]) -> Option<NodeIndex> {
        match &mut self.node_mut(dir).kind {
            NodeKind::Directory(entries) => entries.remove(name),
            _ => None,
        }
    }

    /// Returns the indices of all current nodes.
    pub(super) fn indices(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        (0..self.nodes.len()).map(NodeIndex)
    }

    /// Gives each name of a file its own node, so that the tree has no hard links.
    pub fn separate_links(&mut self) {
        let mut is_named = vec![false; self.nodes.len()];
        for dir in 0..self.nodes.len() {
            let NodeKind::Directory(entries) = &self.node(NodeIndex(dir)).kind else {
                continue;
            };
            let mut repeated = Vec::new();
            for (name, &index) in entries {
                let named = is_named.get_mut(index.0);
                if named.is_some_and(|named| std::mem::replace(named, true)) {
                    repeated.push((name.clone(), index));
                }
            }
            for (name, index) in repeated {
                let own = NodeIndex(self.nodes.len());
                self.nodes.push(self.node(index).clone());
                if let NodeKind::Directory(entries) = &mut self.node_mut(NodeIndex(dir)).kind {
                    entries.insert(name, own);
                }
            }
        }
    }

    /// Sums the lengths of all regular files. A file with several names counts once.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        let lens = self.nodes.iter().map(|node| match node.kind {
            NodeKind::File { len, .. } => len,
            _ => 0,
        });
        lens.fold(0, u64::saturating_add)
    }

    fn insert(&mut self, dir: NodeIndex, name: &[u8], index: NodeIndex) -> Result<(), BuildError> {
        // Longer names are valid in some formats. Each writer has its own limit below this.
        if let Err(source) = check_name(name, usize::from(u16::MAX)) {
            return Err(BuildError::Name {
                path: name.to_vec(),
                source,
            });
        }
        let NodeKind::Directory(entries) = &mut self.node_mut(dir).kind else {
            return Err(BuildError::Conflict {
                path: name.to_vec(),
                reason: "its parent is not a directory",
            });
        };
        match entries.entry(name.to_vec()) {
            Entry::Vacant(entry) => {
                entry.insert(index);
                Ok(())
            }
            Entry::Occupied(_) => Err(BuildError::Conflict {
                path: name.to_vec(),
                reason: "the name exists already",
            }),
        }
    }
}

/// Returns the reason why no image can store a node: readers, including the kernel, end a string at
/// a NUL byte.
fn broken(node: &NewNode) -> Option<&'static str> {
    if matches!(&node.kind, NodeKind::Symlink(target) if target.contains(&0)) {
        return Some("the target of the symbolic link contains a NUL byte");
    }
    let mut names = node.xattrs.keys();
    let has_nul = names.any(|name| name.contains(&0));
    has_nul.then_some("the name of an extended attribute contains a NUL byte")
}
