use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A counter. The order is that of the data flow, from the source up.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Counter {
            $($(#[$doc])* $variant,)*
        }

        impl Counter {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the name in `--stats` and JSON output.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

counters! {
    SourceRequests = "source_requests",
    SourceBytes = "source_bytes",
    /// Reads of the source that failed or were short.
    SourceErrors = "source_errors",
    MetadataRequests = "metadata_requests",
    ReadaheadRequests = "readahead_requests",
    ReadaheadBytes = "readahead_bytes",
    /// Bytes read ahead but evicted before a reader asked for them.
    ReadaheadWastedBytes = "readahead_wasted_bytes",
    /// Bytes that the store below was asked to prefetch into a cache of its own.
    HintedBytes = "hinted_bytes",
    /// Metadata blocks found in the cache.
    MetadataHits = "metadata_hits",
    /// Metadata blocks that had to be read.
    MetadataMisses = "metadata_misses",
    /// Lookups of data that was cached or read ahead.
    CacheHits = "cache_hits",
    /// Lookups of data that had to be read or decoded.
    CacheMisses = "cache_misses",
    /// Waits of a reader for another thread's read or decode of the same block.
    CacheWaits = "cache_waits",
    Decodes = "decodes",
    MetadataDecodes = "metadata_decodes",
    DecodedBytes = "decoded_bytes",
    /// Decodes of a block that had been decoded before.
    RepeatedDecodes = "repeated_decodes",
    DecodeErrors = "decode_errors",
    /// Bytes passed to the front end.
    ServedBytes = "served_bytes",
    Writes = "writes",
    WrittenBytes = "written_bytes",
    Flushes = "flushes",
    WriteErrors = "write_errors",
    Discards = "discards",
}

/// The values of all counters, cheap enough to be always on.
#[derive(Debug)]
pub struct IoStats {
    values: Vec<AtomicU64>,
}

impl Default for IoStats {
    fn default() -> Self {
        Self {
            values: Counter::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl IoStats {
    pub fn add(&self, counter: Counter, n: u64) {
        if let Some(value) = self.values.get(index(counter)) {
            value.fetch_add(n, Ordering::Relaxed);
        }
    }

    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.values
            .get(index(counter))
            .map_or(0, |value| value.load(Ordering::Relaxed))
    }

    #[must_use]
    pub fn snapshot(&self) -> StatsSnapshot {
        StatsSnapshot {
            values: Counter::ALL
                .iter()
                .map(|&counter| self.get(counter))
                .collect(),
        }
    }
}

/// The values of all counters at one moment, or the difference between two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsSnapshot {
    values: Vec<u64>,
}

impl StatsSnapshot {
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.values.get(index(counter)).copied().unwrap_or(0)
    }

    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.values.iter().zip(&earlier.values);
        Self {
            values: pairs.map(|(now, then)| now - then).collect(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL
            .iter()
            .map(|&counter| (counter, self.get(counter)))
    }
}

impl fmt::Display for StatsSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (counter, value) in self.iter() {
            writeln!(f, "{:<24}{value:>16}", counter.name())?;
        }
        Ok(())
    }
}

#[allow(clippy::as_conversions)] // The discriminants are 0..ALL.len() by construction.
const fn index(counter: Counter) -> usize {
    counter as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_its_own_place() {
        let stats = IoStats::default();
        for (n, &counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(index(counter), n);
            stats.add(counter, crate::u64_from(n) + 1);
        }
        let before = stats.snapshot();
        stats.add(Counter::Flushes, 5);
        assert_eq!(stats.snapshot().since(&before).get(Counter::Flushes), 5);
        assert_eq!(before.get(Counter::SourceRequests), 1);
    }
}
