//! The walk over a tree: depth first, in the image's order, iterative and bounded.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_io::u64_from;

use crate::{
    Bound, DirCursor, Error, FileSystem, FileType, Layout, Limits, Metadata, NodeId, Result,
};

/// Bytes of entries that a walk holds per directory.
const BATCH: usize = 1 << 20;
/// Bytes of entries per directory when the levels above hold nearly all of the walk's share.
const LEAST_BATCH: usize = 4 << 10;
/// Fraction of [`Limits::walk_bytes`] (one in N) for the entries of all levels; the caller has the
/// rest.
const SHARE: usize = 8;

#[derive(Debug)]
pub struct WalkEntry {
    /// Path below the start, without a leading slash; empty for the start itself.
    pub path: Vec<u8>,
    pub node: NodeId,
    /// The node's metadata. An error here affects only this node: the walk continues, but does not
    /// enter it.
    pub metadata: Result<Metadata>,
}

impl WalkEntry {
    /// Returns the last component of the path.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.path
            .rsplit(|&byte| byte == b'/')
            .next()
            .unwrap_or_default()
    }
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("/{}: {error}", String::from_utf8_lossy(path))]
pub struct WalkError {
    /// Path of the directory below the start, as in [`WalkEntry::path`].
    pub path: Vec<u8>,
    pub error: Error,
}

impl From<WalkError> for Error {
    fn from(failed: WalkError) -> Self {
        failed.error
    }
}

/// A directory on the way to the current position.
struct Level {
    node: NodeId,
    path_len: usize,
    batch: Batch,
    /// Cursor of the next batch; `None` after the last one.
    next: Option<DirCursor>,
    entries: u64,
}

/// Entries of a directory, read in one call, so that a driver need not find its cursor again for
/// each entry.
#[derive(Default)]
struct Batch {
    names: Vec<u8>,
    /// The end of each name in `names`, and the node of that name.
    entries: Vec<(usize, NodeId)>,
    given: usize,
}

impl Batch {
    fn push(&mut self, name: &[u8], node: NodeId) {
        self.names.extend_from_slice(name);
        self.entries.push((self.names.len(), node));
    }

    fn held(&self) -> usize {
        self.names.capacity() + self.entries.capacity() * size_of::<(usize, NodeId)>()
    }

    fn len(&self) -> usize {
        self.names.len() + self.entries.len() * size_of::<(usize, NodeId)>()
    }

    fn next(&mut self) -> Option<(&[u8], NodeId)> {
        let &(end, node) = self.entries.get(self.given)?;
        let before = self.given.checked_sub(1);
        let start = before.and_then(|before| self.entries.get(before));
        let start = start.map_or(0, |&(end, _)| end);
        self.given += 1;
        Some((&self.names[start..end], node))
    }
}

/// A depth-first walk. A directory comes before its contents.
///
/// The walk ends on any image: a directory that lies below itself is an error, and depth and number
/// of entries are bounded by [`Limits`]. It holds some entries of each directory on the way to the
/// current position, at most an eighth of [`Limits::walk_bytes`], and 8 KiB per level.
pub struct Walk<'a> {
    fs: Driver<'a>,
    limits: Cow<'a, Limits>,
    levels: Vec<Level>,
    path: Vec<u8>,
    seen: u64,
    most: u64,
    /// Bytes that the batches of all levels hold.
    held: usize,
    start: Option<NodeId>,
    /// The directory returned last; the next step enters it unless it is skipped.
    enter: Option<NodeId>,
}

/// The driver, borrowed from the caller or kept open by the walk.
enum Driver<'a> {
    Borrowed(&'a dyn FileSystem),
    Shared(Arc<dyn FileSystem>),
}

impl Driver<'_> {
    fn get(&self) -> &dyn FileSystem {
        match self {
            Self::Borrowed(fs) => *fs,
            Self::Shared(fs) => &**fs,
        }
    }
}

impl Walk<'static> {
    /// Creates a walk as [`new`](Self::new) does. It keeps the filesystem open itself.
    #[must_use]
    pub fn shared(fs: Arc<dyn FileSystem>, start: NodeId, limits: Limits) -> Self {
        Self::of(Driver::Shared(fs), start, Cow::Owned(limits))
    }
}

impl<'a> Walk<'a> {
    /// Creates a walk of `start` and everything below it.
    #[must_use]
    pub fn new(fs: &'a dyn FileSystem, start: NodeId, limits: &'a Limits) -> Self {
        Self::of(Driver::Borrowed(fs), start, Cow::Borrowed(limits))
    }

    fn of(fs: Driver<'a>, start: NodeId, limits: Cow<'a, Limits>) -> Self {
        let layout = fs.get().capabilities().layout;
        let names = layout.and_then(Layout::names_max).unwrap_or(u64::MAX);
        Self {
            fs,
            levels: Vec::new(),
            path: Vec::new(),
            seen: 0,
            most: names.min(limits.tree_entries),
            limits,
            held: 0,
            start: Some(start),
            enter: None,
        }
    }

    /// Skips the contents of the directory returned last.
    pub fn skip_children(&mut self) {
        self.enter = None;
    }

    /// Enters a directory and reads its first entries.
    fn enter(&mut self, dir: NodeId) -> Result<()> {
        if self.levels.iter().any(|level| level.node == dir) {
            return Err(Error::DirectoryLoop {
                node: dir,
                path: self.path.clone(),
            });
        }
        if self.levels.len() >= self.limits.depth {
            return Err(Error::limit(
                Bound::Depth,
                "depth of the directory tree",
                u64_from(self.limits.depth),
            ));
        }
        let mut level = Level {
            node: dir,
            path_len: self.path.len(),
            batch: Batch::default(),
            next: Some(DirCursor::START),
            entries: 0,
        };
        let read = self.read_batch(&mut level);
        self.levels.push(level);
        read
    }

    /// Reads the next entries of a directory. Keeps the entries before an error.
    fn read_batch(&mut self, level: &mut Level) -> Result<()> {
        let Some(from) = level.next.take() else {
            return Ok(());
        };
        self.held -= level.batch.held();
        let share = forerun_io::usize_from(self.limits.walk_bytes) / SHARE;
        let room = share.saturating_sub(self.held) / SHARE;
        let room = room.clamp(LEAST_BATCH, BATCH);
        let budget = self.limits.dir_entries - level.entries;
        let budget = budget.min(self.most - self.seen);
        let mut batch = Batch::default();
        let (mut over, mut next) = (false, None);
        let result = self.fs.get().read_dir(level.node, from, &mut |entry| {
            if u64_from(batch.entries.len()) >= budget {
                over = true;
                return ControlFlow::Break(());
            }
            batch.push(entry.name, entry.node);
            if batch.len() >= room {
                next = Some(entry.next);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        let read = u64_from(batch.entries.len());
        self.seen += read;
        level.entries += read;
        self.held += batch.held();
        (level.batch, level.next) = (batch, next);
        if over {
            return Err(Error::limit(
                Bound::Entries,
                format!("number of entries at directory {}", level.node),
                level.entries,
            ));
        }
        result
    }

    /// Creates an error for the directory to which the path has been truncated.
    fn failed(&self, error: Error) -> WalkError {
        WalkError {
            path: self.path.clone(),
            error,
        }
    }

    fn entry(&mut self, node: NodeId) -> WalkEntry {
        let metadata = self.fs.get().metadata(node);
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
    /// After an error, the walk continues with the entries of that directory that could be read.
    type Item = Result<WalkEntry, WalkError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(start) = self.start.take() {
            return Some(Ok(self.entry(start)));
        }
        if let Some(dir) = self.enter.take()
            && let Err(error) = self.enter(dir)
        {
            return Some(Err(self.failed(error)));
        }
        loop {
            let level = self.levels.last_mut()?;
            self.path.truncate(level.path_len);
            if let Some((name, node)) = level.batch.next() {
                if !self.path.is_empty() {
                    self.path.push(b'/');
                }
                self.path.extend_from_slice(name);
                return Some(Ok(self.entry(node)));
            }
            let mut level = self.levels.pop()?;
            if level.next.is_none() {
                self.held -= level.batch.held();
                continue;
            }
            let read = self.read_batch(&mut level);
            self.levels.push(level);
            if let Err(error) = read {
                return Some(Err(self.failed(error)));
            }
        }
    }
}
