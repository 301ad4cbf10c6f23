//! Files read ahead of who reads a tree.
//!
//! Small files end before readahead within them can begin; what reads thousands of them one after
//! the other (a copy, a compiler, `tar`) waits for each. What can be told is which files come next:
//! those behind this one in its directory, those of the directories below, then those behind its
//! directory in the parent. So when files are read in the order of a listing, a walk of our own goes
//! on from there, and what it meets is read and decoded ahead, up to a window of bytes that grows as
//! the reader follows. Several readers of different parts are several walks.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forerun_vfs::{DirCursor, FileSystem, FileType, NodeId};

use crate::ahead::Plan;

/// Walks at a time, the least recently followed forgotten first.
const WALKS: usize = 8;
/// First reads remembered, to see the second of a directory by.
const RECENT: usize = 32;
/// Entries whose place in a listing is remembered: twice as many at the most.
const TRAILS: usize = 1 << 17;
/// The window a walk starts with.
const FIRST_WINDOW: u64 = 512 << 10;
/// Of one file, what is read ahead before anybody opens it; the rest follows as it is read.
const FILE_AHEAD: u64 = 1 << 20;
/// Bytes between two files that are read along to make one request of both.
const MAX_GAP: u64 = 64 << 10;
/// Least that a file counts for, so that empty ones do not make the walk endless.
const MIN_COST: u64 = 2048;
/// Entries that one step of a walk may look at.
const STEP: usize = 2048;
/// Entries taken from a listing at once.
const BATCH: usize = 64;

/// Who reads which part of the tree.
pub struct TreeAhead {
    max_window: u64,
    trails: Mutex<Trails>,
    walks: Mutex<Walks>,
}

/// Where an entry is: in which listing, and the position behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trail {
    dir: NodeId,
    next: DirCursor,
}

/// Two generations: when the new one is full, it becomes the old one.
#[derive(Default)]
struct Trails {
    new: HashMap<NodeId, Trail>,
    old: HashMap<NodeId, Trail>,
}

#[derive(Default)]
struct Walks {
    recent: VecDeque<Trail>,
    walks: VecDeque<Arc<Mutex<Walk>>>,
}

/// A reader and what was planned ahead of it.
pub struct Walk {
    /// Away while somebody goes on with it.
    cursor: Option<WalkCursor>,
    planned: VecDeque<(NodeId, u64)>,
    ahead: u64,
    window: u64,
}

/// A position in the tree.
#[derive(Default)]
struct WalkCursor {
    frames: Vec<Frame>,
}

struct Frame {
    dir: NodeId,
    next: DirCursor,
    /// Entries taken from the listing and not looked at: those that are files or directories.
    batch: VecDeque<(NodeId, FileType)>,
    is_done: bool,
}

impl TreeAhead {
    /// Reads at most `max_window` bytes ahead of each reader.
    pub fn new(max_window: u64) -> Self {
        Self {
            max_window,
            trails: Mutex::default(),
            walks: Mutex::default(),
        }
    }

    /// Notes entries that a front end was shown: node, and the position behind it.
    pub fn listed(&self, dir: NodeId, entries: &[(NodeId, DirCursor)]) {
        let mut trails = lock(&self.trails);
        for &(node, next) in entries {
            trails.insert(node, Trail { dir, next });
        }
    }

    /// Notes that a file is read from its start. Gives the walk to go on with, if any.
    pub fn on_read(&self, node: NodeId) -> Option<Arc<Mutex<Walk>>> {
        if self.max_window == 0 {
            return None;
        }
        let mut walks = lock(&self.walks);
        let found = walks.walks.iter().position(|walk| lock(walk).passes(node));
        if let Some(walk) = found.and_then(|at| walks.walks.remove(at)) {
            let goes_on = lock(&walk).followed(self.max_window);
            walks.walks.push_front(Arc::clone(&walk));
            return goes_on.then_some(walk);
        }
        let trail = lock(&self.trails).get(node)?;
        let follows = |before: &Trail| before.dir == trail.dir && before.next < trail.next;
        let is_second = walks.recent.iter().any(follows);
        walks.recent.push_front(trail);
        walks.recent.truncate(RECENT);
        if !is_second {
            return None;
        }
        let walk = Arc::new(Mutex::new(Walk::behind(trail, self.max_window)));
        walks.walks.push_front(Arc::clone(&walk));
        walks.walks.truncate(WALKS);
        Some(walk)
    }

    /// Goes on with a walk: gives what to read ahead. Reads metadata, so not for a thread that
    /// somebody waits for.
    pub fn go_on(&self, fs: &dyn FileSystem, walk: &Mutex<Walk>) -> Plan {
        let mut plan = Plan::default();
        let (taken, mut room) = {
            let mut walk = lock(walk);
            (walk.cursor.take(), walk.window.saturating_sub(walk.ahead))
        };
        // Somebody else is at it.
        let Some(mut cursor) = taken else {
            return plan;
        };
        let mut planned = Vec::new();
        let mut steps = STEP;
        while room > 0 {
            let Some(node) = cursor.next_file(fs, &mut steps, |dir| lock(&self.trails).get(dir))
            else {
                break;
            };
            let size = fs.metadata(node).map_or(0, |metadata| metadata.size);
            let cost = size.clamp(MIN_COST, FILE_AHEAD);
            plan.add(fs, node, 0..FILE_AHEAD, MAX_GAP);
            planned.push((node, cost));
            room = room.saturating_sub(cost);
        }
        let mut walk = lock(walk);
        walk.ahead += planned.iter().map(|&(_, cost)| cost).sum::<u64>();
        walk.planned.extend(planned);
        walk.cursor = Some(cursor);
        plan
    }
}

impl Trails {
    fn get(&self, node: NodeId) -> Option<Trail> {
        self.new.get(&node).or_else(|| self.old.get(&node)).copied()
    }

    fn insert(&mut self, node: NodeId, trail: Trail) {
        if self.new.len() >= TRAILS {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(node, trail);
    }
}

impl Walk {
    fn behind(trail: Trail, max_window: u64) -> Self {
        Self {
            cursor: Some(WalkCursor {
                frames: vec![Frame::new(trail.dir, trail.next)],
            }),
            planned: VecDeque::new(),
            ahead: 0,
            window: FIRST_WINDOW.min(max_window),
        }
    }

    /// Whether `node` was planned; it and what was planned before it are behind the reader then.
    fn passes(&mut self, node: NodeId) -> bool {
        let Some(at) = self
            .planned
            .iter()
            .position(|&(planned, _)| planned == node)
        else {
            return false;
        };
        let passed: u64 = self.planned.drain(..=at).map(|(_, cost)| cost).sum();
        self.ahead = self.ahead.saturating_sub(passed);
        true
    }

    /// The reader follows: the window grows. Whether it is time to go on.
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

    fn fill(&mut self, fs: &dyn FileSystem, steps: &mut usize) {
        let mut seen = 0;
        let (batch, next) = (&mut self.batch, &mut self.next);
        // What is wrong there is reported to the reader who gets there.
        let result = fs.read_dir(self.dir, *next, &mut |entry| {
            seen += 1;
            *next = entry.next;
            if matches!(entry.kind, FileType::Regular | FileType::Directory) {
                batch.push_back((entry.node, entry.kind));
            }
            if seen < BATCH {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        self.is_done = seen < BATCH || result.is_err();
        *steps = steps.saturating_sub(seen.max(1));
    }
}

impl WalkCursor {
    /// The next regular file of a depth-first walk in the order of the listings.
    fn next_file(
        &mut self,
        fs: &dyn FileSystem,
        steps: &mut usize,
        trail_of: impl Fn(NodeId) -> Option<Trail>,
    ) -> Option<NodeId> {
        while *steps > 0 {
            let depth = self.frames.len();
            let frame = self.frames.last_mut()?;
            match frame.batch.pop_front() {
                Some((node, FileType::Directory)) => {
                    // Deeper than any tree: a loop, which its reader will hear of.
                    if depth < 1024 {
                        self.frames.push(Frame::new(node, DirCursor::START));
                    }
                }
                Some((node, _)) => return Some(node),
                None if !frame.is_done => frame.fill(fs, steps),
                None => {
                    let done = frame.dir;
                    self.frames.pop();
                    *steps = steps.saturating_sub(1);
                    // Above where the walk began, the way is that of the front end.
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
    // No code that holds one of these locks can leave its data half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forerun_testkit::{MemFsBuilder, Piece};

    /// A tree of 3 x 4 files, each 100 bytes, and a file behind the directories.
    fn tree() -> (Arc<dyn FileSystem>, Vec<NodeId>) {
        let mut builder = MemFsBuilder::new();
        let mut files = Vec::new();
        for dir in ["a", "b", "c"] {
            for file in 0..4 {
                let path = format!("{dir}/{file}");
                files.push(builder.file(&path, [Piece::Stored(vec![1; 100])]));
            }
        }
        files.push(builder.file("z", [Piece::Stored(vec![1; 100])]));
        (builder.build().driver(), files)
    }

    fn list(ahead: &TreeAhead, fs: &dyn FileSystem, dir: NodeId) {
        let mut entries = Vec::new();
        let mut dirs = Vec::new();
        fs.read_dir(dir, DirCursor::START, &mut |entry| {
            entries.push((entry.node, entry.next));
            if entry.kind == FileType::Directory {
                dirs.push(entry.node);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        ahead.listed(dir, &entries);
        dirs.into_iter().for_each(|dir| list(ahead, fs, dir));
    }

    fn planned(walk: &Mutex<Walk>) -> Vec<NodeId> {
        lock(walk).planned.iter().map(|&(node, _)| node).collect()
    }

    #[test]
    fn a_walk_goes_on_across_directories_and_ends_with_the_tree() {
        let (fs, files) = tree();
        let ahead = TreeAhead::new(1 << 20);
        list(&ahead, &*fs, fs.root());
        assert!(ahead.on_read(files[0]).is_none(), "one file is no order");
        let walk = ahead.on_read(files[1]).unwrap();
        ahead.go_on(&*fs, &walk);
        assert_eq!(planned(&walk), files[2..]);
        assert!(ahead.on_read(files[5]).is_some());
        assert_eq!(planned(&walk), files[6..], "what was passed is forgotten");
    }

    #[test]
    fn files_in_no_order_start_nothing() {
        let (fs, files) = tree();
        let ahead = TreeAhead::new(1 << 20);
        assert!(ahead.on_read(files[0]).is_none() && ahead.on_read(files[1]).is_none());
        list(&ahead, &*fs, fs.root());
        for &file in [3, 2, 7, 6, 11, 12].map(|at| &files[at]) {
            assert!(ahead.on_read(file).is_none());
        }
    }

    #[test]
    fn the_window_bounds_what_is_planned_and_grows() {
        let mut builder = MemFsBuilder::new();
        let files: Vec<_> = (0..2000)
            .map(|n| builder.file(&format!("{n:04}"), [Piece::Stored(vec![1; 5000])]))
            .collect();
        let fs = builder.build().driver();
        let ahead = TreeAhead::new(2 << 20);
        list(&ahead, &*fs, fs.root());
        ahead.on_read(files[0]);
        let walk = ahead.on_read(files[1]).unwrap();
        let (mut most, mut misses) = (0, 0);
        for &file in &files[2..] {
            ahead.go_on(&*fs, &walk);
            let now = planned(&walk);
            misses += usize::from(now.first() != Some(&file));
            most = most.max(now.len());
            ahead.on_read(file);
        }
        assert_eq!(misses, 0, "each file was planned before it was read");
        assert!(most > 300 && most <= (2 << 20) / 5000 + 1, "{most}");
    }

    #[test]
    fn endless_directories_end_a_step() {
        let mut builder = MemFsBuilder::new();
        let file = builder.file("d/f", [Piece::Stored(vec![1; 10])]);
        let dir = builder.dir("d/x");
        builder.raw_entry(dir, b"x", dir);
        let second = builder.file("d/g", [Piece::Stored(vec![1; 10])]);
        let fs = builder.build().driver();
        let ahead = TreeAhead::new(1 << 20);
        let mut entries = Vec::new();
        let parent = fs.lookup(fs.root(), b"d").unwrap().unwrap();
        fs.read_dir(parent, DirCursor::START, &mut |entry| {
            entries.push((entry.node, entry.next));
            ControlFlow::Continue(())
        })
        .unwrap();
        ahead.listed(parent, &entries);
        ahead.on_read(file);
        let walk = ahead.on_read(second).unwrap();
        ahead.go_on(&*fs, &walk);
        assert!(planned(&walk).is_empty());
    }
}
