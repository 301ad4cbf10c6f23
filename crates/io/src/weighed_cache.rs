//! A bounded cache of values of different sizes.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::{u64_from, usize_from};

/// Average memory of an entry, which determines the size of the table.
const TYPICAL: u64 = 4096;
/// Smallest number of entries to size the table for.
const FEWEST: usize = 16;
const MOST: usize = 1 << 14;

/// A value whose memory is counted.
pub trait Weighed {
    /// Returns the memory of the value in bytes, including its entry in the cache.
    fn weight(&self) -> u64;
}

impl<T: Weighed> Weighed for Arc<T> {
    fn weight(&self) -> u64 {
        T::weight(self)
    }
}

#[derive(Clone, Copy)]
struct ByWeight;

impl<K, V: Weighed> Weighter<K, V> for ByWeight {
    fn weight(&self, _key: &K, value: &V) -> u64 {
        value.weight()
    }
}

/// A cache of the most recently used values, bounded in bytes: indexes of directories, for example.
///
/// Even a value that takes nine tenths of the budget is cached, so that large, expensive values are
/// not made again at each use.
pub struct WeighedCache<K, V> {
    cache: Cache<K, V, ByWeight>,
}

impl<K, V> fmt::Debug for WeighedCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeighedCache").finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash, V: Clone + Weighed> WeighedCache<K, V> {
    #[must_use]
    pub fn new(budget: usize) -> Self {
        let budget = u64_from(budget);
        let items = usize_from(budget / TYPICAL).clamp(FEWEST, MOST);
        // One shard: a shard refuses a value that is heavier than its share of the budget.
        let options = OptionsBuilder::new()
            .shards(1)
            .estimated_items_capacity(items)
            .weight_capacity(budget)
            .build();
        let cache = match options {
            Ok(options) => Cache::with_options(
                options,
                ByWeight,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
            // Unreachable: only a missing capacity is an error.
            Err(_) => Cache::with_weighter(items, budget, ByWeight),
        };
        Self { cache }
    }

    #[must_use]
    pub fn get(&self, key: &K) -> Option<V> {
        self.cache.get(key)
    }

    pub fn insert(&self, key: K, value: V) {
        self.cache.insert(key, value);
    }

    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.cache.weight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Heavy(u64);

    impl Weighed for Heavy {
        fn weight(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn a_value_of_most_of_the_budget_is_kept_and_a_heavier_one_is_not() {
        let cache = WeighedCache::new(1000);
        cache.insert(1, Heavy(900));
        assert_eq!(cache.get(&1), Some(Heavy(900)));
        cache.insert(2, Heavy(1001));
        assert_eq!(cache.get(&2), None);
    }

    #[test]
    fn many_values_stay_inside_the_budget() {
        let cache = WeighedCache::new(1 << 20);
        for key in 0..1000 {
            cache.insert(key, Heavy(10_000));
            assert!(cache.bytes() <= 1 << 20, "{} after {key}", cache.bytes());
        }
        assert!(cache.bytes() > 1 << 19);
        cache.insert(1, Heavy(5));
        cache.insert(1, Heavy(7));
        assert_eq!(cache.get(&1), Some(Heavy(7)));
    }
}
