//! The walk over a tree: depth first, in the image's order, iterative and bounded.

use std::ops::ControlFlow;

use forerun_io::u64_from;

use crate::{DirCursor, Error, FileSystem, FileType, Limits, Metadata, NodeId, Result};

/// A node met by a [`Walk`].
#[derive(Debug)]
pub struct WalkEntry {
    /// Path below the start, without a leading slash; empty for the start itself.
    pub path: Vec<u8>,
    /// The node.
    pub node: NodeId,
    /// Its metadata. An error here concerns this node only and the walk goes on, but does not
    /// enter it.
    pub metadata: Result<Metadata>,
}

impl WalkEntry {
    /// Last component of the path.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.path
            .rsplit(|&byte| byte == b'/')
            .next()
            .unwrap_or_default()
    }
}

struct Level {
    node: NodeId,
    path_len: usize,
    /// The whole directory: read in one go, so that a driver's cursor is not restarted per entry.
    entries: std::vec::IntoIter<(Vec<u8>, NodeId)>,
}

/// Depth-first walk; a directory comes before what is in it.
///
/// Ends by itself on any image: a directory that contains itself is an error where it is met again
/// below itself, and depth and number of entries are bounded by [`Limits`].
pub struct Walk<'a> {
    fs: &'a dyn FileSystem,
    limits: &'a Limits,
    levels: Vec<Level>,
    path: Vec<u8>,
    seen: u64,
    /// Most entries in all.
    most: u64,
    start: Option<NodeId>,
    /// The directory given out last, entered at the next step unless skipped.
    enter: Option<NodeId>,
}

impl<'a> Walk<'a> {
    /// A walk of `start` and everything below it.
    #[must_use]
    pub fn new(fs: &'a dyn FileSystem, start: NodeId, limits: &'a Limits) -> Self {
        Self {
            fs,
            limits,
            levels: Vec::new(),
            path: Vec::new(),
            seen: 0,
            most: fs
                .volume()
                .names_max
                .unwrap_or(u64::MAX)
                .min(limits.tree_entries),
            start: Some(start),
            enter: None,
        }
    }

    /// Leaves out what is below the directory given out last.
    pub fn skip_children(&mut self) {
        self.enter = None;
    }

    fn read_level(&mut self, dir: NodeId) -> Result<()> {
        if self.levels.iter().any(|level| level.node == dir) {
            return Err(Error::DirectoryLoop {
                node: dir,
                path: self.path.clone(),
            });
        }
        if self.levels.len() >= self.limits.depth {
            return Err(Error::limit(
                "depth of the directory tree",
                u64_from(self.limits.depth),
            ));
        }
        let mut entries = Vec::new();
        let budget = self
            .limits
            .dir_entries
            .min(self.most.saturating_sub(self.seen));
        let mut over = false;
        let result = self.fs.read_dir(dir, DirCursor::START, &mut |entry| {
            if u64_from(entries.len()) >= budget {
                over = true;
                return ControlFlow::Break(());
            }
            entries.push((entry.name.to_vec(), entry.node));
            ControlFlow::Continue(())
        });
        self.seen += u64_from(entries.len());
        let path_len = self.path.len();
        self.levels.push(Level {
            node: dir,
            path_len,
            entries: entries.into_iter(),
        });
        if over {
            return Err(Error::limit(
                format!("number of entries at directory {dir}"),
                budget,
            ));
        }
        result
    }

    fn entry(&mut self, node: NodeId) -> WalkEntry {
        let metadata = self.fs.metadata(node);
        if metadata
            .as_ref()
            .is_ok_and(|metadata| metadata.kind == FileType::Directory)
        {
            self.enter = Some(node);
        }
        WalkEntry {
            path: self.path.clone(),
            node,
            metadata,
        }
    }
}

impl Iterator for Walk<'_> {
    /// An error concerns the directory given out last; what could be read of it still comes.
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(start) = self.start.take() {
            return Some(Ok(self.entry(start)));
        }
        if let Some(dir) = self.enter.take()
            && let Err(error) = self.read_level(dir)
        {
            return Some(Err(error));
        }
        loop {
            let level = self.levels.last_mut()?;
            self.path.truncate(level.path_len);
            if let Some((name, node)) = level.entries.next() {
                if !self.path.is_empty() {
                    self.path.push(b'/');
                }
                self.path.extend_from_slice(&name);
                return Some(Ok(self.entry(node)));
            }
            self.levels.pop();
        }
    }
}
