//! Names of long listings and where they are, so that a lookup starts close to its goal.
//!
//! A listing is searched from its start, or from one of its indexes, which are 8 KiB and some hundred names apart.
//! Once lookups have passed as many bytes of a listing as it has, one of its names in [`EVERY`] is remembered.

use std::sync::Arc;

use forerun_io::{Weighed, WeighedCache, u64_from};
use forerun_vfs::NodeId;

use crate::reference::Reference;

/// Names between two that are remembered. A search among these costs about as much as the way to them.
pub const EVERY: u64 = 16;

/// A place before an entry of a listing.
#[derive(Clone, Copy, Debug)]
pub struct EntryPlace {
    /// Distance from the start of the listing.
    pub at: u64,
    pub reference: Reference,
    /// The metadata block of the inodes of the run.
    pub block: u32,
    /// Entries of the run: passed, and in total.
    pub done: u64,
    pub count: u64,
}

/// Names of one listing, in order, and the places of their entries.
#[derive(Debug, Default)]
pub struct Landmarks {
    names: Vec<u8>,
    /// The end of each name among the names, and its place.
    places: Vec<(usize, EntryPlace)>,
}

impl Landmarks {
    /// Adds a name that comes after all others.
    pub fn push(&mut self, name: &[u8], place: EntryPlace) {
        self.names.extend_from_slice(name);
        self.places.push((self.names.len(), place));
    }

    /// Returns the number of bytes that they take.
    pub fn weight(&self) -> u64 {
        let places = self.places.capacity() * size_of::<(usize, EntryPlace)>();
        u64_from(places + self.names.capacity())
    }

    /// Returns the place of the last name at or before `wanted`.
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

/// Knowledge that lookups have of a directory.
#[derive(Clone, Debug)]
pub enum Remembered {
    /// The bytes of the listing that they have passed.
    Passed(u64),
    Landmarks(Arc<Landmarks>),
    /// The listing is too long, or an entry of it is bad: it is searched by its indexes.
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

/// The [knowledge](Remembered) of the directories used last, together within
/// [`Limits::dir_index_bytes`](forerun_vfs::Limits).
pub struct Directories {
    most: u64,
    cache: WeighedCache<NodeId, Remembered>,
}

impl Directories {
    pub fn new(budget: usize) -> Self {
        Self {
            // A quarter: one directory must not evict all others.
            most: u64_from(budget / 4),
            cache: WeighedCache::new(budget),
        }
    }

    /// Returns the most bytes that the landmarks of one directory may take.
    pub const fn most(&self) -> u64 {
        self.most
    }

    /// Returns the knowledge of a directory.
    pub fn get(&self, dir: NodeId) -> Remembered {
        self.cache.get(&dir).unwrap_or(Remembered::Passed(0))
    }

    /// Replaces the knowledge of a directory.
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
