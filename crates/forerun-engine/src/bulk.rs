//! Reading many files: extract, tar, pack.

use std::sync::{Mutex, PoisonError};

use forerun_vfs::NodeId;

use crate::Reader;
use crate::ahead::Plan;

/// Of one file, what is read ahead before anybody opens it; the rest follows as it is read.
const FILE_AHEAD: u64 = 4 << 20;
/// Bytes between two files that are read along to make one request of both. What lies between is
/// most often a header that will be wanted too.
const MAX_GAP: u64 = 64 << 10;

/// A list of files that one or many threads work off, while the engine reads ahead along it, across
/// the borders of files.
#[derive(Debug)]
pub struct Bulk {
    reader: Reader,
    nodes: Vec<NodeId>,
    window: u64,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    taken: usize,
    /// First file that nothing was read ahead of yet.
    planned: usize,
    /// Bytes read ahead up to each planned file, for files not taken yet: oldest first.
    ahead: u64,
    costs: std::collections::VecDeque<u64>,
}

impl Bulk {
    pub(crate) fn new(reader: Reader, nodes: Vec<NodeId>) -> Self {
        let window = reader.bulk_window();
        Self {
            reader,
            nodes,
            window,
            progress: Mutex::default(),
        }
    }

    /// The next file that nobody has taken yet, with its position in the list. The caller reads it
    /// to its end through [`reader`](Self::reader).
    pub fn take(&self) -> Option<(usize, NodeId)> {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let position = progress.taken;
        let node = *self.nodes.get(position)?;
        progress.taken += 1;
        let cost = progress.costs.pop_front().unwrap_or(0);
        progress.ahead = progress.ahead.saturating_sub(cost);
        progress.planned = progress.planned.max(progress.taken);
        // In large steps: half a window at a time makes large requests.
        if self.window > 0 && progress.ahead <= self.window / 2 {
            self.plan(&mut progress);
        }
        Some((position, node))
    }

    /// What the files are read with.
    #[must_use]
    pub const fn reader(&self) -> &Reader {
        &self.reader
    }

    fn plan(&self, progress: &mut Progress) {
        let mut plan = Plan::default();
        while progress.ahead < self.window {
            let Some(&node) = self.nodes.get(progress.planned) else {
                break;
            };
            let before = (plan.bytes(), plan.decoded());
            plan.add(self.reader.fs(), node, 0..FILE_AHEAD, MAX_GAP);
            // What is decoded ahead must still be there when it is wanted, so that counts too. At
            // least something for each file, so that empty files do not plan the whole list.
            let stored = plan.bytes().saturating_sub(before.0);
            let decoded = plan.decoded().saturating_sub(before.1);
            let cost = stored.max(decoded).max(512);
            progress.planned += 1;
            progress.ahead += cost;
            progress.costs.push_back(cost);
        }
        plan.coalesce(MAX_GAP);
        self.reader.start(plan);
    }
}
