//! A map of the most recent entries, in bounded memory.
//!
//! The map has two generations. A full new generation replaces the old one, whose entries are
//! evicted. This is cheaper than tracking the order of use, and as good if entries are inserted in
//! the order in which they age.

use std::collections::HashMap;
use std::hash::Hash;

/// A map of at least the last `capacity` entries, and at most twice as many.
pub struct Recent<K, V> {
    capacity: usize,
    new: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Hash + Eq, V: Copy> Recent<K, V> {
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            new: HashMap::new(),
            old: HashMap::new(),
        }
    }

    pub fn get(&self, key: K) -> Option<V> {
        self.new.get(&key).or_else(|| self.old.get(&key)).copied()
    }

    pub fn insert(&mut self, key: K, value: V) {
        if self.new.len() >= self.capacity {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(key, value);
    }

    pub fn clear(&mut self) {
        self.new.clear();
        self.old.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_entries_are_kept_and_the_rest_bounded() {
        let mut recent = Recent::new(10);
        for n in 0..1000_usize {
            recent.insert(n, n * 2);
            for kept in n.saturating_sub(9)..=n {
                assert_eq!(recent.get(kept), Some(kept * 2), "{kept} after {n}");
            }
            assert!(recent.new.len() + recent.old.len() <= 20);
        }
        recent.insert(999, 1);
        assert_eq!(recent.get(999), Some(1), "the newer value");
        recent.clear();
        assert_eq!(recent.get(999), None);
    }
}
