//! Addresses that took summing: where records hold lengths alone, an extent lies behind all those
//! before it.
//!
//! Each file is mapped piece by piece, and each piece would sum from the start: a file of n extents
//! that is read from end to end would take n * n / 2 additions. So every so many records the address is
//! kept, of the files that were mapped last. The sums follow from the image alone, so nothing here can
//! go stale.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use forerun_io::{saturating_usize, u64_from};
use forerun_vfs::NodeId;

/// Records between two addresses that are kept, in files that are not too long for that.
const STEP: u64 = 64;
/// Addresses kept of one file at the most: with the number of files half a MiB.
const ADDRESSES: u64 = 4096;
/// Files of which addresses are kept.
const FILES: usize = 16;

/// The addresses of some files.
#[derive(Debug, Default)]
pub struct Sums {
    /// The file that was mapped last comes last.
    files: Mutex<VecDeque<(NodeId, Vec<u64>)>>,
}

/// Records between two addresses that are kept, in a file of `count`.
pub fn step(count: u64) -> u64 {
    count.div_ceil(ADDRESSES).max(STEP)
}

impl Sums {
    /// The last record up to `index` whose address is known, and that address. `step` is always the
    /// same for a node.
    pub fn before(&self, node: NodeId, step: u64, index: u64) -> Option<(u64, u64)> {
        let mut files = self.files();
        let position = files.iter().position(|(other, _)| *other == node)?;
        let file = files.remove(position)?;
        let last = u64_from(file.1.len()).checked_sub(1);
        let known = last.and_then(|last| {
            let at = (index / step).min(last);
            Some((at * step, *file.1.get(saturating_usize(at))?))
        });
        files.push_back(file);
        known
    }

    /// Keeps the address of a record, if it is the next to be kept.
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
        // Nothing is half done while it is locked.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
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
        // 192 came before its turn.
        assert_eq!(sums.before(node, 64, 1000), Some((128, 1280)));
        for other in 2..18 {
            sums.learn(NodeId(other), 64, 0, 0);
            assert!(other == 17 || sums.before(node, 64, 0).is_some());
        }
        assert_eq!(sums.before(NodeId(2), 64, 0), None);
        assert_eq!(sums.before(node, 64, 0), Some((0, 0)));
    }
}
