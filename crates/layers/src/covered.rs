//! The names in the upper directories of a merged directory. Entries with these names in lower
//! directories are not shown.
//!
//! A listing shows the topmost directory first, and needs no names for it. For the others it
//! collects the names of all directories except the lowest, which is usually the longest. Instead,
//! each entry could be looked up in each upper directory, but that takes longer the longer these
//! directories are. The names are cached for the next part of the listing.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use forerun_io::{Limits, Unpoisoned, u64_from};
use forerun_vfs::{DirCursor, Held, Result};

use crate::ids::LayerNode;
use crate::stack::Stack;
use crate::whiteout;

/// Number of listings whose names are cached.
const LISTINGS: usize = 16;
/// Memory of a name in addition to its bytes.
const NAME_LEN: usize = size_of::<(Box<[u8]>, usize)>() + 16;

#[derive(Debug)]
pub struct Covered {
    /// For each name, the index of the topmost directory that has or hides it.
    names: HashMap<Box<[u8]>, usize>,
    bytes: u64,
}

impl Covered {
    /// Collects the names of all `dirs` except the last; topmost first. Fails if the names take
    /// more than [`Limits::walk_bytes`].
    fn read(stack: &Stack, dirs: &[LayerNode]) -> Result<Self> {
        let limit = stack.limits().name_len;
        let mut held = Held::new(stack.limits());
        let mut names: HashMap<Box<[u8]>, usize> = HashMap::new();
        let mut bytes = 0;
        let upper = dirs.split_last().map_or(&[][..], |(_, upper)| upper);
        for (index, &dir) in upper.iter().enumerate() {
            let mut counted = Ok(());
            stack.read_dir(dir, DirCursor::START, &mut |_, entry| {
                let name = if whiteout::is_marker(entry.name) {
                    whiteout::hidden(entry.name, limit)
                } else {
                    Some(entry.name)
                };
                let Some(name) = name.filter(|&name| !names.contains_key(name)) else {
                    return ControlFlow::Continue(());
                };
                let len = name.len() + NAME_LEN;
                counted = held.add(len);
                if counted.is_err() {
                    return ControlFlow::Break(());
                }
                bytes += u64_from(len);
                names.insert(name.into(), index);
                ControlFlow::Continue(())
            })?;
            counted?;
        }
        Ok(Self { names, bytes })
    }

    /// Returns whether a directory above the one at `index` has or hides an entry of this name.
    pub fn covers(&self, index: usize, name: &[u8]) -> bool {
        self.names.get(name).is_some_and(|&top| top < index)
    }
}

/// A cache of the names of the directories that were listed last.
pub struct Listings {
    kept: Mutex<VecDeque<(LayerNode, Arc<Covered>)>>,
    most: u64,
}

impl Listings {
    /// Creates an empty cache, which holds up to an eighth of [`Limits::walk_bytes`].
    pub fn new(limits: &Limits) -> Self {
        Self {
            kept: Mutex::default(),
            most: limits.walk_bytes / 8,
        }
    }

    /// Returns the names of the merged directory `top`, whose visible directories are `dirs`.
    pub fn get(&self, stack: &Stack, top: LayerNode, dirs: &[LayerNode]) -> Result<Arc<Covered>> {
        if let Some(found) = self.kept(top) {
            return Ok(found);
        }
        let covered = Arc::new(Covered::read(stack, dirs)?);
        let mut kept = self.kept.lock().unpoisoned();
        kept.retain(|(there, _)| *there != top);
        kept.push_front((top, Arc::clone(&covered)));
        let (mut count, mut bytes) = (0, 0_u64);
        kept.retain(|(_, covered)| {
            count += 1;
            bytes += covered.bytes;
            count <= LISTINGS && bytes <= self.most
        });
        Ok(covered)
    }

    fn kept(&self, top: LayerNode) -> Option<Arc<Covered>> {
        let mut kept = self.kept.lock().unpoisoned();
        let at = kept.iter().position(|(there, _)| *there == top)?;
        let found = kept.remove(at)?;
        let covered = Arc::clone(&found.1);
        kept.push_front(found);
        Some(covered)
    }
}
