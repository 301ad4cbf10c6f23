//! Groups files of one directory into runs, each taken by one thread.
//!
//! The kernel locks a directory while it creates a file in it. Threads that take single files work
//! in the same directory at the same time and wait for each other.

use std::collections::HashMap;
use std::sync::Mutex;

use forerun_engine::{Bulk, TakenFile};
use forerun_io::Unpoisoned;
use forerun_vfs::NodeId;

use super::plan::Item;

/// Maximum files per run, so that work remains for all threads at the end.
const MOST_FILES: usize = 64;

/// Maximum bytes per run, except for its last file: readahead keeps the data in the cache until
/// then.
const MOST_BYTES: u64 = 1 << 20;

/// Splits a bulk stream into runs.
pub struct Runs<'r> {
    bulk: &'r Bulk,
    by_node: HashMap<NodeId, &'r Item<'r>>,
    /// The file that ended the last run and begins the next.
    next: Mutex<Option<Taken<'r>>>,
}

pub type Taken<'r> = (TakenFile, &'r Item<'r>);

impl<'r> Runs<'r> {
    pub fn new(bulk: &'r Bulk, items: &'r [Item<'r>]) -> Self {
        Self {
            bulk,
            by_node: items.iter().map(|item| (item.entry.node, item)).collect(),
            next: Mutex::new(None),
        }
    }

    /// Takes the next run; empty at the end.
    pub fn take(&self) -> Vec<Taken<'r>> {
        let mut next = self.next.lock().unpoisoned();
        let mut take = || loop {
            let taken = self.bulk.take()?;
            if let Some(item) = self.by_node.get(&taken.node) {
                return Some((taken, *item));
            }
        };
        let of = |(_, item): &Taken<'_>| (item.dir, item.entry.metadata.size);
        run(&mut next, &mut take, of)
    }
}

/// Returns the next run of the items from `take`. The item that ends it goes to `next`. `of`
/// returns an item's directory and bytes.
fn run<T>(
    next: &mut Option<T>,
    take: &mut impl FnMut() -> Option<T>,
    of: impl Fn(&T) -> (usize, u64),
) -> Vec<T> {
    let Some(first) = next.take().or_else(&mut *take) else {
        return Vec::new();
    };
    let (dir, mut bytes) = of(&first);
    let mut run = vec![first];
    while run.len() < MOST_FILES && bytes < MOST_BYTES {
        let Some(file) = take() else {
            break;
        };
        let (its_dir, its_bytes) = of(&file);
        if its_dir != dir {
            *next = Some(file);
            break;
        }
        bytes = bytes.saturating_add(its_bytes);
        run.push(file);
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(files: &[(usize, u64)]) -> Vec<Vec<(usize, u64)>> {
        let mut left = files.iter().copied();
        let mut next = None;
        std::iter::from_fn(|| {
            let run = run(&mut next, &mut || left.next(), |file| *file);
            (!run.is_empty()).then_some(run)
        })
        .collect()
    }

    #[test]
    fn a_directory_is_given_to_one_thread() {
        let files = [(1, 5), (1, 5), (2, 5), (1, 5), (1, 5), (1, 5)];
        let lens: Vec<_> = runs(&files).iter().map(Vec::len).collect();
        assert_eq!(lens, [2, 1, 3]);
        assert_eq!(runs(&files).concat(), files);
        assert!(runs(&[]).is_empty());
    }

    #[test]
    fn runs_are_bounded_in_files_and_bytes() {
        let small = vec![(1, 0); 3 * MOST_FILES];
        assert!(runs(&small).iter().all(|run| run.len() == MOST_FILES));
        let large = vec![(1, MOST_BYTES / 2); 10];
        assert!(runs(&large).iter().all(|run| run.len() == 2));
        let huge = vec![(1, u64::MAX); 3];
        assert_eq!(runs(&huge).len(), 3);
    }
}
