//! The plan of a volume: its files and directories, their order, and the number of entries that
//! they need.

use forerun_build::{BuildError, NodeIndex, NodeKind, Tree};
use forerun_io::u64_from;

use super::names::{Complaints, Directory};
use super::{ExfatOptions, cannot};
use crate::entry_set::name_entries;
use crate::ondisk::{ENTRY_LEN, MAX_DIRECTORY};
use crate::upcase::Upcase;

pub struct Item {
    pub name: Vec<u16>,
    pub node: NodeIndex,
    /// Index of the parent directory's item.
    pub parent: usize,
    /// Length of a file, or of the entries of a directory. Not rounded.
    pub len: u64,
    pub is_directory: bool,
    /// The name in the tree, for messages.
    pub source: Vec<u8>,
}

/// All items in breadth-first order: the root, then the entries of each directory together.
pub struct Plan {
    pub items: Vec<Item>,
    /// Directories, in the order in which they are written.
    pub directories: Vec<usize>,
    /// The entries of each directory, as a range of items.
    pub children: Vec<std::ops::Range<usize>>,
}

impl Plan {
    pub fn new(tree: &Tree, options: &ExfatOptions, upcase: &Upcase) -> Result<Self, BuildError> {
        let root = Item {
            name: Vec::new(),
            node: Tree::ROOT,
            parent: 0,
            len: root_entries(options) * ENTRY_LEN,
            is_directory: true,
            source: Vec::new(),
        };
        let mut plan = Self {
            items: vec![root],
            directories: vec![0],
            children: Vec::new(),
        };
        let mut complaints = Complaints::default();
        let mut next = 0;
        while let Some(&directory) = plan.directories.get(next) {
            plan.list(tree, options, upcase, directory, &mut complaints)?;
            next += 1;
        }
        complaints.end()?;
        Ok(plan)
    }

    fn list(
        &mut self,
        tree: &Tree,
        options: &ExfatOptions,
        upcase: &Upcase,
        parent: usize,
        complaints: &mut Complaints,
    ) -> Result<(), BuildError> {
        let Some(node) = self.items.get(parent).map(|item| item.node) else {
            return Ok(());
        };
        let mut path = self.path(parent);
        if !path.is_empty() {
            path.push(b'/');
        }
        let mut names = Directory::new(&path, upcase, options.keep_last_dots);
        let first = self.items.len();
        let mut entries = 0;
        for (name, node) in tree.children(node) {
            let (len, is_directory) = match &tree.node(node).kind {
                NodeKind::Directory(_) => (0, true),
                NodeKind::File { len, .. } => (*len, false),
                NodeKind::Symlink(_)
                | NodeKind::BlockDevice(_)
                | NodeKind::CharDevice(_)
                | NodeKind::Fifo
                | NodeKind::Socket => continue,
            };
            let Some(units) = names.take(name, complaints) else {
                continue;
            };
            entries += u64_from(2 + name_entries(units.len()));
            if is_directory {
                self.directories.push(self.items.len());
            }
            self.items.push(Item {
                name: units,
                node,
                parent,
                len,
                is_directory,
                source: name.to_vec(),
            });
        }
        self.children.push(first..self.items.len());
        if let Some(item) = self.items.get_mut(parent) {
            item.len += entries * ENTRY_LEN;
            if item.len > MAX_DIRECTORY {
                let path = String::from_utf8_lossy(&path);
                let len = item.len;
                return Err(cannot(format!(
                    "directory /{path} takes {len} bytes; {MAX_DIRECTORY} are possible"
                )));
            }
        }
        Ok(())
    }

    pub fn path(&self, item: usize) -> Vec<u8> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = item;
        while let Some(item) = self.items.get(at).filter(|_| at != 0) {
            names.push(&item.source);
            at = item.parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// Returns the number of clusters of an item, for clusters of `cluster` bytes. A directory has
    /// at least one.
    pub fn clusters(item: &Item, cluster: u64) -> u64 {
        let len = if item.is_directory {
            item.len.max(1)
        } else {
            item.len
        };
        len.div_ceil(cluster)
    }

    /// Returns the number of clusters of all items; `None` if it overflows.
    pub fn all_clusters(&self, cluster: u64) -> Option<u64> {
        let mut clusters = self.items.iter().map(|item| Self::clusters(item, cluster));
        clusters.try_fold(0, u64::checked_add)
    }
}

/// Returns the number of entries of the root directory: label, bitmap, up-case table, and an
/// optional GUID.
pub fn root_entries(options: &ExfatOptions) -> u64 {
    if options.guid.is_some() { 4 } else { 3 }
}
