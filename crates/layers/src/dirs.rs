//! The table of merged directories.
//!
//! A directory in one layer is not in the table. A directory in several layers is identified by its
//! uppermost directory, so that its id does not depend on the order in which directories were
//! found. All directories above a merged one are merged too, so a search from the root finds each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use forerun_io::{Limits, Unpoisoned};
use forerun_vfs::{Corrupt, Error, Held, NodeId, Result};

use crate::ids::{LayerNode, Named};
use crate::stack::Stack;

/// Bytes that an entry of the table takes in addition to its nodes.
const ENTRY_LEN: usize = size_of::<MergedDir>() + 64;

#[derive(Debug)]
pub struct MergedDir {
    /// Topmost first; at least two nodes, or those of the root.
    nodes: Vec<LayerNode>,
    /// Number of visible nodes: those below an opaque directory are not visible. Unknown until the
    /// directory is listed.
    visible: OnceLock<usize>,
    is_searched: AtomicBool,
}

impl MergedDir {
    /// Returns the uppermost directory, which identifies the merged one.
    pub fn top(&self) -> Option<LayerNode> {
        self.nodes.first().copied()
    }

    /// Returns all directories at its path, including those below an opaque one.
    pub fn all(&self) -> &[LayerNode] {
        &self.nodes
    }

    /// Returns the directory that the metadata is taken from: the uppermost that its image
    /// describes.
    pub fn described(&self, stack: &Stack) -> Option<LayerNode> {
        let mut known = self.nodes.iter().filter(|&&at| !stack.is_implied(at));
        known.next().copied().or(self.top())
    }

    /// Returns the visible directories, topmost first.
    pub fn visible(&self, stack: &Stack) -> Result<&[LayerNode]> {
        let count = match self.visible.get() {
            Some(&count) => count,
            None => {
                let mut count = self.nodes.len();
                let (last, above) = self.nodes.split_last().unzip();
                for (index, &dir) in above.unwrap_or_default().iter().enumerate() {
                    if stack.is_opaque(dir)? {
                        count = index + 1;
                        break;
                    }
                }
                if let Some(&last) = last.filter(|_| count == self.nodes.len()) {
                    stack.expect_no_redirect(last)?;
                }
                *self.visible.get_or_init(|| count)
            }
        };
        Ok(self.nodes.get(..count).unwrap_or_default())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("directory {node} of layer {layer} has two paths")]
pub struct AtTwoPaths {
    node: NodeId,
    layer: u16,
}

/// The known merged directories, by their uppermost directory.
pub struct Table {
    dirs: RwLock<HashMap<LayerNode, Arc<MergedDir>>>,
    held: Mutex<Held>,
    /// Whether all merged directories are known.
    is_complete: AtomicBool,
}

impl Table {
    /// Creates an empty table, of at most [`Limits::walk_bytes`].
    pub fn new(limits: &Limits) -> Self {
        Self {
            dirs: RwLock::default(),
            held: Mutex::new(Held::new(limits)),
            is_complete: AtomicBool::new(false),
        }
    }

    pub fn get(&self, top: LayerNode) -> Option<Arc<MergedDir>> {
        self.dirs.read().unpoisoned().get(&top).map(Arc::clone)
    }

    /// Adds the directory merged from `nodes`, topmost first, unless it is in the table. Returns
    /// its id.
    ///
    /// # Errors
    /// [`Corrupt`] if the table has its uppermost directory merged with others: the directory then
    /// has two paths. Also fails if there are too many directories, or an id does not fit.
    pub fn add(&self, top: LayerNode, nodes: Vec<LayerNode>) -> Result<NodeId> {
        let id = Named::Merged(top).id()?;
        let is_same = |dir: &Arc<MergedDir>| {
            if dir.nodes == nodes {
                Ok(id)
            } else {
                let LayerNode { layer, node } = top;
                Err(Corrupt::new("layers", Some(id), 0, AtTwoPaths { node, layer }).into())
            }
        };
        if let Some(there) = self.get(top) {
            return is_same(&there);
        }
        let mut dirs = self.dirs.write().unpoisoned();
        if let Some(there) = dirs.get(&top) {
            return is_same(there);
        }
        let len = ENTRY_LEN + nodes.len() * size_of::<LayerNode>();
        self.held.lock().unpoisoned().add(len)?;
        let dir = MergedDir {
            nodes,
            visible: OnceLock::new(),
            is_searched: AtomicBool::new(false),
        };
        dirs.insert(top, Arc::new(dir));
        Ok(id)
    }

    /// Returns the directory with this uppermost one. If it is not known, lists directories with
    /// `list`, which adds their merged subdirectories to the table. Each directory is listed once
    /// for all searches.
    ///
    /// # Errors
    /// [`Error::Io`] of a directory that could not be listed. A damaged directory does not end the
    /// search: directories below it stay unknown.
    pub fn search(
        &self,
        top: LayerNode,
        list: impl Fn(&MergedDir) -> Result<()>,
    ) -> Result<Option<Arc<MergedDir>>> {
        loop {
            if let Some(found) = self.get(top) {
                return Ok(Some(found));
            }
            if self.is_complete.load(Ordering::Acquire) {
                return Ok(None);
            }
            let left = self.left();
            if left.is_empty() {
                self.is_complete.store(true, Ordering::Release);
            }
            for dir in left {
                if let Err(error @ Error::Io { .. }) = list(&dir) {
                    return Err(error);
                }
                dir.is_searched.store(true, Ordering::Release);
                if self.get(top).is_some() {
                    break;
                }
            }
        }
    }

    fn left(&self) -> Vec<Arc<MergedDir>> {
        let dirs = self.dirs.read().unpoisoned();
        let is_left = |dir: &&Arc<MergedDir>| !dir.is_searched.load(Ordering::Acquire);
        dirs.values().filter(is_left).map(Arc::clone).collect()
    }
}
