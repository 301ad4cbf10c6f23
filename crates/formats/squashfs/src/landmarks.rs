//! Remembered names of long listings, so that a lookup starts close to its target.
//!
//! Without them a search starts at the beginning of the listing or at a directory index; indexes
//! are 8 KiB and some hundred names apart. Once lookups have read as many bytes as the listing has,
//! one in [`EVERY`] of its names is remembered.

use std::sync::Arc;

use forerun_io::{Weighed, WeighedCache, u64_from};
use forerun_vfs::NodeId;

use crate::reference::Reference;

/// Distance between remembered names. Scanning this many entries costs about as much as finding
/// their start.
pub const EVERY: u64 = 16;

/// A position before a directory entry.
#[derive(Clone, Copy, Debug)]
pub struct EntryPlace {
    /// Offset in the listing.
    pub at: u64,
    pub reference: Reference,
    /// The metadata block of the run's inodes.
    pub block: u32,
    /// Number of entries of the run that were passed, and their total.
    pub done: u64,
    pub count: u64,
}

/// The remembered names of a listing, sorted, with the positions of their entries.
#[derive(Debug, Default)]
pub struct Landmarks {
    names: Vec<u8>,
    /// The end of each name in `names`, and its position.
    places: Vec<(usize, EntryPlace)>,
}

impl Landmarks {
    /// Adds a name, which must sort after all others.
    pub fn push(&mut self, name: &[u8], place: EntryPlace) {
        self.names.extend_from_slice(name);
        self.places.push((self.names.len(), place));
    }

    /// Returns the memory used, in bytes.
    pub fn weight(&self) -> u64 {
        let places = self.places.capacity() * size_of::<(usize, EntryPlace)>();
        u64_from(places + self.names.capacity())
    }

    /// Returns the position of the last name at or before `wanted`.
    pub fn before(&self, wanted: &[u8]) -> Option<EntryPlace> {
        let (mut from, mut to) = (0, self.places.len());
        while from < to {
            let middle = from.midpoint(to);
            if self.name(middle) <= wanted {
                from = middle + 1
            } else {
                to = middle
            }
        }
        let (_, place) = self.places.get(from.checked_sub(1)?)?;
        Some(*place)
    }

    fn name(&self, index: usize) -> &[u8] {
        let end_of = |index: usize| self.places.get(index).map(|(end, _)| *end);
        let start = index.checked_sub(1).and_then(end_of).unwrap_or(0);
        let name = end_of(index).and_then(|end| self.names.get(start..end));
        name.unwrap_or_default()
    }
}

/// What lookups remember of a directory.
#[derive(Clone, Debug)]
pub enum Remembered {
    /// Bytes of the listing that lookups have read.
    Passed(u64),
    Landmarks(Arc<Landmarks>),
    /// The listing is too long or has a bad entry: lookups use only its indexes.
    Unfit,
}

impl Weighed for Remembered {
    fn weight(&self) -> u64 {
        match self {
            Self::Passed(_) | Self::Unfit => 256,
            Self::Landmarks(landmarks) => landmarks.weight() + 128,
        }
    }
}

/// What lookups [remember](Remembered) of recently used directories, within
/// [`Limits::dir_index_bytes`](forerun_vfs::Limits).
pub struct Directories {
    most: u64,
    cache: WeighedCache<NodeId, Remembered>,
}

impl Directories {
    pub fn new(budget: usize) -> Self {
        Self {
            // A quarter, so that one directory cannot evict all others.
            most: u64_from(budget / 4),
            cache: WeighedCache::new(budget),
        }
    }

    /// Returns the most bytes that the remembered names of one directory may take.
    pub const fn most(&self) -> u64 {
        self.most
    }

    pub fn get(&self, dir: NodeId) -> Remembered {
        self.cache.get(&dir).unwrap_or(Remembered::Passed(0))
    }

    pub fn set(&self, dir: NodeId, known: Remembered) {
        self.cache.insert(dir, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(at: u64) -> EntryPlace {
        EntryPlace {
            at,
            reference: Reference::from_raw(at),
            block: 0,
            done: 0,
            count: 0,
        }
    }

    #[test]
    fn the_last_name_at_or_before() {
        let mut landmarks = Landmarks::default();
        assert!(landmarks.before(b"x").is_none());
        for (at, name) in [&b"b"[..], b"dd", b"ddd", b"f"].into_iter().enumerate() {
            landmarks.push(name, place(u64_from(at)));
        }
        for (wanted, expected) in [
            (&b"a"[..], None),
            (b"b", Some(0)),
            (b"c", Some(0)),
            (b"dd", Some(1)),
            (b"ddc", Some(1)),
            (b"ddd", Some(2)),
            (b"e", Some(2)),
            (b"z", Some(3)),
        ] {
            let found = landmarks.before(wanted).map(|place| place.at);
            assert_eq!(found, expected, "{wanted:?}");
        }
    }

    #[test]
    fn landmarks_are_bounded_in_bytes() {
        let directories = Directories::new(1 << 20);
        for dir in 0..100 {
            let mut landmarks = Landmarks::default();
            while landmarks.weight() <= directories.most() / 2 {
                landmarks.push(b"name", place(0));
            }
            directories.set(NodeId(dir), Remembered::Landmarks(Arc::new(landmarks)));
            assert!(directories.cache.bytes() <= 1 << 20);
        }
        assert!(matches!(
            directories.get(NodeId(99)),
            Remembered::Landmarks(_)
        ));
    }
}
