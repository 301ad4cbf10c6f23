//! Remembered positions in long runs of metadata: block sizes of large files, long listings.
//!
//! A metadata block tells only where the next one starts, so position N of a run is found by
//! walking the blocks before it. Positions found by one walk are remembered, so that the next one
//! starts near its target.

use std::sync::{Arc, Mutex};

use forerun_io::Unpoisoned;
use forerun_vfs::NodeId;
use quick_cache::sync::Cache;

use crate::reference::Reference;

const RUNS: usize = 512;
/// Positions remembered of a run. Of a longer run, only the first ones are.
const MARKS: usize = 1 << 16;

/// A position that a walk reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Distance from the start of the run, in the run's own unit.
    pub at: u64,
    pub reference: Reference,
    /// Length of the file data before the mark; 0 for a listing.
    pub data: u64,
}

pub struct Positions {
    runs: Cache<NodeId, Arc<Mutex<Vec<Mark>>>>,
}

impl Positions {
    pub fn new() -> Self {
        Self {
            runs: Cache::new(RUNS),
        }
    }

    pub fn before(&self, node: NodeId, at: u64) -> Option<Mark> {
        let marks = self.runs.get(&node)?;
        let marks = marks.lock().unpoisoned();
        let after = marks.partition_point(|mark| mark.at <= at);
        marks.get(after.checked_sub(1)?).copied()
    }

    /// Remembers a position if it comes after all remembered ones.
    pub fn note(&self, node: NodeId, mark: Mark) {
        let marks = match self.runs.get(&node) {
            Some(marks) => marks,
            None => {
                let marks = Arc::default();
                self.runs.insert(node, Arc::clone(&marks));
                marks
            }
        };
        let mut marks = marks.lock().unpoisoned();
        if marks.len() < MARKS && marks.last().is_none_or(|last| last.at < mark.at) {
            marks.push(mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mark_before() {
        let positions = Positions::new();
        let mark = |at| Mark {
            at,
            reference: Reference::from_raw(at << 20),
            data: at * 3,
        };
        assert_eq!(positions.before(NodeId(1), 5), None);
        for at in [10, 20, 15, 20, 30] {
            positions.note(NodeId(1), mark(at));
        }
        for (at, expected) in [
            (9, None),
            (10, Some(10)),
            (19, Some(10)),
            (29, Some(20)),
            (99, Some(30)),
        ] {
            assert_eq!(positions.before(NodeId(1), at), expected.map(mark), "{at}");
        }
        assert_eq!(positions.before(NodeId(2), 99), None);
    }
}
