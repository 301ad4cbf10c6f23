//! Readahead across small files during a tree read.
//!
//! Small files end before readahead within them can begin, so a program that reads thousands of
//! them in turn (a copy, a compiler, `tar`) waits for each. A listing predicts which files come
//! next: the following files of the directory, the files of its subdirectories, then those that
//! follow the directory in its parent. When files are read in the order of a listing, the engine
//! continues the walk itself. It reads and decodes files ahead, up to a window of bytes that grows
//! as the reader follows. Several readers in different parts of the tree have a walk each; a walk
//! skips files that another walk has planned or passed.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use forerun_io::{Unpoisoned, usize_from};
use forerun_vfs::{DirCursor, FileSystem, FileType, NodeId};

use crate::ahead::Plan;
use crate::recent::Recent;
use crate::tuning::{
    FILE_GAP, FIRST_READS, LISTED_ENTRIES, LISTING_BATCH, MARK_FILES, MARKS_IN_WINDOW, SEEN_FILES,
    TREE_FILE_MIN, TREE_STEP, TREE_TRIES, TREE_WALKS, TREE_WINDOW, WINDOW_OF_ENTRY,
};

/// A callback that announces nodes whose metadata, and then data, will be wanted.
type ExpectFiles<'a> = &'a dyn Fn(&[NodeId]);

/// The walks ahead of the readers of a tree, and the files that were recently listed, planned and
/// read.
pub struct TreeAhead {
    max_window: u64,
    /// Most bytes to plan per file.
    file: u64,
    trails: Mutex<Recent<NodeId, Trail>>,
    seen: Mutex<Recent<NodeId, Seen>>,
    walks: Mutex<Walks>,
    has_walked: AtomicBool,
}

/// The position of an entry: its directory, and the cursor after it in the listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trail {
    dir: NodeId,
    next: DirCursor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Planned,
    Read,
}

#[derive(Default)]
struct Walks {
    recent: VecDeque<Trail>,
    walks: VecDeque<Arc<Mutex<Walk>>>,
}

/// A walk ahead of one reader, and the files planned for it.
pub struct Walk {
    /// The directory in which the walk begins; `None` after its first step.
    begins_in: Option<NodeId>,
    /// `None` while a thread advances the walk.
    cursor: Option<WalkCursor>,
    planned: VecDeque<(NodeId, u64)>,
    /// How many files at the front of `planned` were handed over or left out.
    handed: usize,
    /// Files and bytes handed over since the last file that was left out.
    since_mark: (usize, u64),
    ahead: u64,
    window: u64,
}

#[derive(Default)]
struct WalkCursor {
    frames: Vec<Frame>,
}

struct Tree<'a> {
    fs: &'a dyn FileSystem,
    expect: ExpectFiles<'a>,
    batch: usize,
}

struct Frame {
    dir: NodeId,
    next: DirCursor,
    /// Files and directories of the listing that the walk has not visited yet.
    batch: VecDeque<(NodeId, FileType)>,
    is_done: bool,
}

impl TreeAhead {
    /// Creates the readahead of one image, with at most `max_window` bytes ahead of each reader (0
    /// turns it off). Only the first `file` bytes of each file are planned.
    pub fn new(max_window: u64, file: u64) -> Self {
        Self {
            max_window,
            file,
            trails: Mutex::new(Recent::new(LISTED_ENTRIES)),
            seen: Mutex::new(Recent::new(SEEN_FILES)),
            walks: Mutex::default(),
            has_walked: AtomicBool::new(false),
        }
    }

    /// Returns whether any reader has read files in the order of a listing. Until then,
    /// [`upcoming`](Self::upcoming) returns nothing.
    pub fn has_walked(&self) -> bool {
        self.has_walked.load(Ordering::Relaxed)
    }

    /// Records entries that a front end has listed: each node, and the cursor after it.
    pub fn listed(&self, dir: NodeId, entries: &[(NodeId, DirCursor)]) {
        let mut trails = lock(&self.trails);
        for &(node, next) in entries {
            trails.insert(node, Trail { dir, next });
        }
    }

    /// Records that a file is read from its start. Returns the walk that the caller must advance,
    /// if any.
    pub fn on_read(&self, node: NodeId) -> Option<Arc<Mutex<Walk>>> {
        if self.max_window == 0 {
            return None;
        }
        let was_planned = self.note_read(node);
        let mut walks = lock(&self.walks);
        let found = walks.walks.iter().position(|walk| lock(walk).passes(node));
        if let Some(walk) = found.and_then(|at| walks.walks.remove(at)) {
            let goes_on = lock(&walk).followed(self.max_window);
            walks.walks.push_front(Arc::clone(&walk));
            return goes_on.then_some(walk);
        }
        // A walk has planned this file; the reader has just reached it.
        if was_planned {
            return None;
        }
        let trail = lock(&self.trails).get(node)?;
        let follows = |before: &Trail| before.dir == trail.dir && before.next < trail.next;
        let is_second = walks.recent.iter().any(follows);
        walks.recent.push_front(trail);
        walks.recent.truncate(FIRST_READS);
        // Readers may be faster than the threads that advance walks. A walk that has not begun also
        // covers the neighbours of this file, and a newer walk must not displace it.
        let waiting = walks.walks.iter().filter_map(|walk| lock(walk).begins_in);
        let is_covered = waiting.clone().any(|dir| dir == trail.dir);
        if !is_second || is_covered || waiting.count() >= TREE_WALKS / 2 {
            return None;
        }
        let walk = Arc::new(Mutex::new(Walk::behind(trail, self.max_window)));
        walks.walks.push_front(Arc::clone(&walk));
        walks.walks.truncate(TREE_WALKS);
        self.has_walked.store(true, Ordering::Relaxed);
        Some(walk)
    }

    /// Records that a file was read. Returns whether it was planned.
    fn note_read(&self, node: NodeId) -> bool {
        let mut seen = lock(&self.seen);
        let before = seen.get(node);
        if before == Some(Seen::Read) {
            // A second read of the file: the caches above have dropped it, and perhaps other files
            // too.
            seen.clear();
        }
        seen.insert(node, Seen::Read);
        before == Some(Seen::Planned)
    }

    /// Marks a file as planned. Returns false if it was planned or read before.
    fn is_new(&self, node: NodeId) -> bool {
        let mut seen = lock(&self.seen);
        let is_new = seen.get(node).is_none();
        if is_new {
            seen.insert(node, Seen::Planned);
        }
        is_new
    }

    /// Returns at most `most` files that were read ahead and that a front end has listed, in the
    /// order in which they will be wanted. Each file is returned once. A front end that can push
    /// files to the kernel does so now. Some files are skipped on purpose: their requests show how
    /// far the reader has come.
    pub fn upcoming(&self, most: usize) -> Vec<NodeId> {
        let mut files = Vec::new();
        for walk in self.walks() {
            let was_shown = |node| lock(&self.trails).get(node).is_some();
            let room = most - files.len();
            // The first file is probably being requested now.
            lock(&walk).hand_over(1, room, was_shown, &mut files);
        }
        files
    }

    /// Returns upcoming files as [`upcoming`](Self::upcoming) does, but only those in `dir`, whose
    /// listing is complete and of which no file was read.
    pub fn upcoming_in(&self, dir: NodeId, most: usize) -> Vec<NodeId> {
        let mut files = Vec::new();
        for walk in self.walks() {
            let is_in_it = |node| {
                let trail = lock(&self.trails).get(node);
                trail.is_some_and(|trail| trail.dir == dir)
            };
            let room = most - files.len();
            lock(&walk).hand_over(0, room, is_in_it, &mut files);
        }
        files
    }

    /// Returns whether a file was read recently, so that pushing it would be wasted work.
    pub fn was_read(&self, node: NodeId) -> bool {
        lock(&self.seen).get(node) == Some(Seen::Read)
    }

    fn walks(&self) -> Vec<Arc<Mutex<Walk>>> {
        lock(&self.walks).walks.iter().map(Arc::clone).collect()
    }

    /// Advances a walk and returns what to read ahead. Reads metadata, which it announces with
    /// `expect`, so it must run on the pool and not in a thread that answers requests.
    pub fn go_on(&self, fs: &dyn FileSystem, expect: ExpectFiles<'_>, walk: &Mutex<Walk>) -> Plan {
        let mut plan = Plan::default();
        let (taken, window, mut room) = {
            let mut walk = lock(walk);
            let room = walk.window.saturating_sub(walk.ahead);
            (walk.cursor.take(), walk.window, room)
        };
        // Another thread is advancing this walk.
        let Some(mut cursor) = taken else {
            return plan;
        };
        let batch = usize_from(window / WINDOW_OF_ENTRY)
            .clamp(*LISTING_BATCH.start(), *LISTING_BATCH.end());
        let tree = Tree { fs, expect, batch };
        let mut planned = Vec::new();
        let (mut steps, mut tries) = (TREE_STEP, TREE_TRIES);
        while room > 0 {
            let Some(node) = cursor.next_file(&tree, &mut steps, |dir| lock(&self.trails).get(dir))
            else {
                // A walk that has planned nothing has no reader to follow it and would end here.
                if planned.is_empty() && steps == 0 && tries > 0 {
                    (steps, tries) = (TREE_STEP, tries - 1);
                    continue;
                }
                break;
            };
            if !self.is_new(node) {
                continue;
            }
            let size = fs.metadata(node).map_or(0, |metadata| metadata.size);
            let cost = size.min(self.file).max(TREE_FILE_MIN);
            plan.add(fs, node, 0..self.file, FILE_GAP, &|_| true);
            planned.push((node, cost));
            room = room.saturating_sub(cost);
        }
        // The order of a listing is seldom the order in the image, and one request per file would
        // cost more than reading the files.
        plan.coalesce(FILE_GAP);
        let mut walk = lock(walk);
        walk.begins_in = None;
        walk.ahead += planned.iter().map(|&(_, cost)| cost).sum::<u64>();
        walk.planned.extend(planned);
        walk.cursor = Some(cursor);
        plan
    }
}

impl Walk {
    fn behind(trail: Trail, max_window: u64) -> Self {
        Self {
            begins_in: Some(trail.dir),
            cursor: Some(WalkCursor {
                frames: vec![Frame::new(trail.dir, trail.next)],
            }),
            planned: VecDeque::new(),
            handed: 0,
            since_mark: (0, 0),
            ahead: 0,
            window: TREE_WINDOW.min(max_window),
        }
    }

    /// Removes `node` and all files planned before it, because the reader has reached it. Returns
    /// false if `node` was not planned.
    fn passes(&mut self, node: NodeId) -> bool {
        let Some(at) = self
            .planned
            .iter()
            .position(|&(planned, _)| planned == node)
        else {
            return false;
        };
        let passed: u64 = self.planned.drain(..=at).map(|(_, cost)| cost).sum();
        self.ahead -= passed;
        self.handed = self.handed.saturating_sub(at + 1);
        true
    }

    /// Adds at most `most` planned files to `files`, continuing where the last call ended and
    /// skipping the first `skip`. Stops at the first file that does not `fit`.
    fn hand_over(
        &mut self,
        skip: usize,
        most: usize,
        fit: impl Fn(NodeId) -> bool,
        files: &mut Vec<NodeId>,
    ) {
        let mut left = most;
        self.handed = self.handed.max(skip.min(self.planned.len()));
        for &(node, cost) in self.planned.iter().skip(self.handed) {
            if left == 0 || !fit(node) {
                break;
            }
            self.handed += 1;
            let (count, bytes) = self.since_mark;
            if count + 1 >= MARK_FILES || bytes + cost > self.window / MARKS_IN_WINDOW {
                self.since_mark = (0, 0);
            } else {
                self.since_mark = (count + 1, bytes + cost);
                files.push(node);
                left -= 1;
            }
        }
    }

    /// Grows the window, because the reader follows. Returns whether to advance the walk now.
    fn followed(&mut self, max_window: u64) -> bool {
        self.window = (self.window + self.window / 8).min(max_window);
        self.cursor.is_some() && self.ahead <= self.window / 2
    }
}

impl Frame {
    const fn new(dir: NodeId, next: DirCursor) -> Self {
        Self {
            dir,
            next,
            batch: VecDeque::new(),
            is_done: false,
        }
    }

    fn fill(&mut self, tree: &Tree<'_>, steps: &mut usize) {
        let mut seen = 0;
        let (batch, next) = (&mut self.batch, &mut self.next);
        // The reader that comes to this directory reports the error.
        let result = tree.fs.read_dir(self.dir, *next, &mut |entry| {
            seen += 1;
            *next = entry.next;
            if matches!(entry.kind, FileType::Regular | FileType::Directory) {
                batch.push_back((entry.node, entry.kind));
            }
            if seen < tree.batch {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        self.is_done = seen < tree.batch || result.is_err();
        // Request all inodes before the walk waits for the first.
        (tree.expect)(&self.batch.iter().map(|entry| entry.0).collect::<Vec<_>>());
        *steps = steps.saturating_sub(seen.max(1));
    }
}

impl WalkCursor {
    /// Returns the next regular file of a depth-first walk in the order of the listings, or `None`
    /// at the end of the tree or when `steps` is used up.
    fn next_file(
        &mut self,
        tree: &Tree<'_>,
        steps: &mut usize,
        trail_of: impl Fn(NodeId) -> Option<Trail>,
    ) -> Option<NodeId> {
        while *steps > 0 {
            let depth = self.frames.len();
            let frame = self.frames.last_mut()?;
            match frame.batch.pop_front() {
                Some((node, FileType::Directory)) => {
                    // Deeper than any real tree, so it is a loop. The reader that gets there
                    // reports it.
                    if depth < 1024 {
                        self.frames.push(Frame::new(node, DirCursor::START));
                    }
                }
                Some((node, _)) => return Some(node),
                None if !frame.is_done => frame.fill(tree, steps),
                None => {
                    let done = frame.dir;
                    self.frames.pop();
                    *steps = steps.saturating_sub(1);
                    // Above its first directory, the walk follows the listings of the front end.
                    if self.frames.is_empty()
                        && let Some(trail) = trail_of(done)
                    {
                        self.frames.push(Frame::new(trail.dir, trail.next));
                    }
                }
            }
        }
        None
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No holder of these locks leaves the data half changed when it panics.
    mutex.lock().unpoisoned()
}

#[cfg(test)]
mod tests;
