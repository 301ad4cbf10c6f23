//! Reading many files: extract, tar, pack.

use std::sync::atomic::{AtomicUsize, Ordering};

use forerun_vfs::NodeId;

use crate::Reader;

/// A list of files that one or many threads work off, while the engine reads ahead along it.
#[derive(Debug)]
pub struct Bulk {
    reader: Reader,
    nodes: Vec<NodeId>,
    next: AtomicUsize,
}

impl Bulk {
    pub(crate) const fn new(reader: Reader, nodes: Vec<NodeId>) -> Self {
        Self {
            reader,
            nodes,
            next: AtomicUsize::new(0),
        }
    }

    /// The next file that nobody has taken yet, with its position in the list. The caller reads it
    /// to its end through [`reader`](Self::reader).
    pub fn take(&self) -> Option<(usize, NodeId)> {
        let position = self.next.fetch_add(1, Ordering::Relaxed);
        self.nodes.get(position).map(|&node| (position, node))
    }

    /// What the files are read with.
    #[must_use]
    pub const fn reader(&self) -> &Reader {
        &self.reader
    }
}
