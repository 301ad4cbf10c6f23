//! Remembered addresses of records that hold only lengths: such an extent follows all earlier ones.
//!
//! A file is mapped range by range. Summing from the start for each range would take n * n / 2
//! additions for a sequential read of n extents. So one address in every `STEP` or more is
//! remembered for recently mapped files. Addresses follow from the image alone, so they never
//! become stale.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use forerun_io::{Unpoisoned, u64_from, usize_from};
use forerun_vfs::NodeId;

/// Minimum number of records between two remembered addresses.
const STEP: u64 = 64;
/// Most addresses remembered of one file: half a MiB for all files.
const ADDRESSES: u64 = 4096;
/// Most files with remembered addresses.
const FILES: usize = 16;

#[derive(Debug, Default)]
pub struct Sums {
    /// The most recently mapped file is last.
    files: Mutex<VecDeque<(NodeId, Vec<u64>)>>,
}

/// Returns the number of records between two remembered addresses in a file of `count` records.
pub fn step(count: u64) -> u64 {
    count.div_ceil(ADDRESSES).max(STEP)
}

impl Sums {
    /// Returns the last record up to `index` whose address is known, and that address. `step` must
    /// be the same in all calls for a node.
    pub fn before(&self, node: NodeId, step: u64, index: u64) -> Option<(u64, u64)> {
        let mut files = self.files();
        let position = files.iter().position(|(other, _)| *other == node)?;
        let file = files.remove(position)?;
        let last = u64_from(file.1.len()).checked_sub(1);
        let known = last.and_then(|last| {
            let at = (index / step).min(last);
            Some((at * step, *file.1.get(usize_from(at))?))
        });
        files.push_back(file);
        known
    }

    /// Remembers the address of a record, if it is the next one to remember.
    pub fn learn(&self, node: NodeId, step: u64, index: u64, address: u64) {
        if !index.is_multiple_of(step) {
            return;
        }
        let mut files = self.files();
        let known = files.iter_mut().find(|(other, _)| *other == node);
        match known {
            Some((_, addresses)) if u64_from(addresses.len()) == index / step => {
                addresses.push(address);
            }
            Some(_) => {}
            None if index == 0 => {
                if files.len() == FILES {
                    files.pop_front();
                }
                files.push_back((node, vec![address]));
            }
            None => {}
        }
    }

    fn files(&self) -> MutexGuard<'_, VecDeque<(NodeId, Vec<u64>)>> {
        // No thread panics while it holds the lock, so the state is consistent.
        self.files.lock().unpoisoned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_kept_in_order_and_of_few_files() {
        let sums = Sums::default();
        assert_eq!(step(1), 64);
        assert_eq!(step(1 << 20), 256);
        let node = NodeId(1);
        assert_eq!(sums.before(node, 64, 1000), None);
        for index in [0, 1, 64, 192, 128] {
            sums.learn(node, 64, index, 10 * index);
        }
        assert_eq!(sums.before(node, 64, 63), Some((0, 0)));
        assert_eq!(sums.before(node, 64, 64), Some((64, 640)));
        // 192 was not the next address to remember, so it was ignored.
        assert_eq!(sums.before(node, 64, 1000), Some((128, 1280)));
        for other in 2..18 {
            sums.learn(NodeId(other), 64, 0, 0);
            assert!(other == 17 || sums.before(node, 64, 0).is_some());
        }
        assert_eq!(sums.before(NodeId(2), 64, 0), None);
        assert_eq!(sums.before(node, 64, 0), Some((0, 0)));
    }
}
