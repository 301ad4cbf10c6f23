//! Indexes of directories: names by their key, and the free slots.
//!
//! The first lookup in a directory builds its index in one read of the directory. An index takes
//! about 30 bytes per name. A budget limits the memory of all indexes together.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use forerun_vfs::{Bound, Error, Result};

use crate::dir::{Found, Slots};
use crate::entry_set::EntrySet;
use crate::error::Check;
use crate::ondisk::kind;
use crate::volume::Volume;

/// Slots of the longest entry set: the most that one power cut can leave beyond the end of a
/// directory.
const MOST_LEFT: u32 = 256;

pub struct Index {
    names: BTreeSet<(u32, u32)>,
    /// Runs of free slots within one sector: first slot to length.
    free: BTreeMap<u32, u32>,
    by_len: BTreeSet<(u32, u32)>,
    /// First slot at or after the end of the directory.
    pub end: u32,
    /// Slots in the clusters of the directory.
    pub slots: u32,
    /// Slots per sector. A sector is written completely or not at all.
    pub per_sector: u32,
    /// Sets whose interrupted move did not complete, by their first slot.
    pub stranded: Vec<(u32, EntrySet)>,
    /// First slots of sets whose move completed. They must not be taken for stranded ones later.
    pub departed: Vec<u32>,
    /// Slots of entries in use that belong to no set.
    pub strays: Vec<u32>,
    /// Slots beyond the end in which a power cut left entries.
    pub behind_end: Range<u32>,
    pub damaged: Option<Error>,
}

impl Index {
    /// Reads a directory. Damage is recorded in the index and is not an error.
    pub fn build(
        volume: &Volume,
        slots: &mut Slots<'_>,
        count: u32,
        per_sector: u32,
    ) -> Result<Self> {
        let mut index = Self {
            names: BTreeSet::new(),
            free: BTreeMap::new(),
            by_len: BTreeSet::new(),
            end: 0,
            slots: count,
            per_sector: per_sector.max(1),
            stranded: Vec::new(),
            departed: Vec::new(),
            strays: Vec::new(),
            behind_end: 0..0,
            damaged: None,
        };
        let limit = volume.limits.dir_entries;
        let mut slot = 0;
        while let Some((found, next)) = slots.next_item(slot)? {
            match found {
                Found::Set(set) => {
                    index.names.insert((volume.name_key(&set.name()), slot));
                }
                Found::Stranded(set) => {
                    index.names.insert((volume.name_key(&set.name()), slot));
                    index.stranded.push((slot, set));
                }
                Found::Departed => {
                    index.departed.push(slot);
                    index.release(slot, 1);
                }
                Found::Free => index.release(slot, 1),
                // The slot of an entry that belongs to no set can be reused.
                Found::Damaged(Check::Stray { .. }) => {
                    index.strays.push(slot);
                    index.release(slot, 1);
                }
                Found::Damaged(check) => {
                    index
                        .damaged
                        .get_or_insert_with(|| slots.error(check, slot));
                }
                Found::Other { .. } | Found::Benign { .. } => {}
            }
            if forerun_io::u64_from(index.names.len()) > limit {
                return Err(Error::limit(
                    Bound::Entries,
                    "entries of a directory",
                    limit,
                ));
            }
            slot = next;
        }
        index.end = slot;
        if volume.recovers {
            index.behind_end = left_behind(slots, slot..count)?;
        }
        Ok(index)
    }

    /// Returns the approximate memory of the index in bytes.
    pub fn weight(&self) -> usize {
        256 + self.names.len() * 24 + self.free.len() * 48
    }

    /// Returns the first slots of the sets with this key.
    pub fn candidates(&self, key: u32) -> impl Iterator<Item = u32> {
        let range = self.names.range((key, 0)..=(key, u32::MAX));
        range.map(|&(_, slot)| slot)
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Records that a set with this key begins at `slot`.
    pub fn add(&mut self, key: u32, slot: u32) {
        self.names.insert((key, slot));
    }

    /// Records that the set with this key at `slot` is gone. Its slots are not free yet.
    pub fn remove(&mut self, key: u32, slot: u32) {
        self.names.remove(&(key, slot));
    }

    pub fn release(&mut self, slot: u32, count: u32) {
        let (mut slot, end) = (slot, slot + count);
        while slot < end {
            let border = (slot / self.per_sector + 1) * self.per_sector;
            let now = border.min(end);
            self.release_in_sector(slot, now);
            slot = now;
        }
    }

    fn release_in_sector(&mut self, start: u32, end: u32) {
        let (mut start, mut end) = (start, end);
        let same = |a: u32, b: u32, per: u32| a / per == b / per;
        if let Some((&before, &len)) = self.free.range(..start).next_back()
            && before + len == start
            && same(before, start, self.per_sector)
        {
            self.forget(before, len);
            start = before;
        }
        if let Some(&len) = self.free.get(&end)
            && same(start, end, self.per_sector)
        {
            self.forget(end, len);
            end += len;
        }
        self.free.insert(start, end - start);
        self.by_len.insert((end - start, start));
    }

    fn forget(&mut self, start: u32, len: u32) {
        self.free.remove(&start);
        self.by_len.remove(&(len, start));
    }

    pub fn take(&mut self, slot: u32, count: u32) {
        let end = slot + count;
        let overlapping = |(&start, &len): (&u32, &u32)| (start, len);
        while let Some((start, len)) = self.free.range(..end).next_back().map(overlapping)
            && start + len > slot
        {
            self.forget(start, len);
            if start + len > end {
                self.release_in_sector(end, start + len);
            }
            if start < slot {
                self.release_in_sector(start, slot);
            }
        }
    }

    /// Returns the smallest run of at least `count` free slots within a sector.
    pub fn fit(&self, count: u32) -> Option<u32> {
        let mut fitting = self.by_len.range((count, 0)..);
        fitting.next().map(|&(_, start)| start)
    }

    /// Returns a run of `count` free slots in the sector of `slot`.
    pub fn fit_in_sector(&self, slot: u32, count: u32) -> Option<u32> {
        let first = slot / self.per_sector * self.per_sector;
        let mut runs = self.free.range(first..first + self.per_sector);
        runs.find(|&(_, &len)| len >= count)
            .map(|(&start, _)| start)
    }

    /// Returns free slots for a set that spans several sectors: as few sectors as possible, with
    /// the first two entries in the same sector.
    pub fn fit_across(&self, count: u32) -> Option<u32> {
        let mut run: Option<(u32, u32)> = None;
        for (&start, &len) in &self.free {
            run = match run {
                Some((first, end)) if end == start => Some((first, start + len)),
                _ => Some((start, start + len)),
            };
            if let Some((first, end)) = run {
                let start = self.start_of_set(first, count);
                if end >= start + count {
                    return Some(start);
                }
            }
        }
        None
    }

    /// Returns the first slot at or after `slot` where a set that spans several sectors may begin.
    fn start_of_set(&self, slot: u32, count: u32) -> u32 {
        let (per, inside) = (self.per_sector, slot % self.per_sector);
        let room = count.div_ceil(per) * per;
        if inside + count <= room && inside + 2 <= per {
            slot
        } else {
            slot - inside + per
        }
    }
}

/// Returns the slots of `range`, beyond the end of a directory, in which a power cut left parts of
/// sets. Returns an empty range if an entry may start a set, which only a repair can judge, or if
/// there are more entries than one power cut leaves.
fn left_behind(slots: &mut Slots<'_>, range: Range<u32>) -> Result<Range<u32>> {
    let mut left = range.start..range.start;
    for slot in range {
        let found = slots.entry(slot)?.map_or(kind::END, |entry| entry[0]);
        if found == kind::END {
            continue;
        }
        if left.is_empty() {
            left.start = slot;
        }
        left.end = slot + 1;
        let is_primary = found & kind::IN_USE != 0 && found & kind::SECONDARY == 0;
        if is_primary || left.end - left.start > MOST_LEFT {
            return Ok(0..0);
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        Index {
            names: BTreeSet::new(),
            free: BTreeMap::new(),
            by_len: BTreeSet::new(),
            end: 0,
            slots: 64,
            per_sector: 16,
            stranded: Vec::new(),
            departed: Vec::new(),
            strays: Vec::new(),
            behind_end: 0..0,
            damaged: None,
        }
    }

    #[test]
    fn free_slots_stay_within_sectors() {
        let mut index = index();
        index.release(10, 12);
        assert_eq!(index.free, BTreeMap::from([(10, 6), (16, 6)]));
        assert_eq!(index.fit(6), Some(10));
        assert_eq!(index.fit(7), None);
        index.take(12, 6);
        assert_eq!(index.free, BTreeMap::from([(10, 2), (18, 4)]));
        index.release(12, 6);
        assert_eq!(index.free, BTreeMap::from([(10, 6), (16, 6)]));
        assert_eq!(index.by_len.len(), 2);
        assert_eq!(index.fit_in_sector(20, 3), Some(16));
        assert_eq!(index.fit_in_sector(33, 1), None);
    }

    #[test]
    fn a_long_set_takes_as_few_sectors_as_it_can() {
        let mut index = index();
        index.release(29, 20);
        assert_eq!(index.fit_across(17), Some(29));
        assert_eq!(index.fit_across(20), None, "29 to 49 are in three sectors");
        index.release(49, 3);
        assert_eq!(index.fit_across(20), Some(32));
        index.take(29, 2);
        assert_eq!(
            index.fit_across(17),
            Some(32),
            "31 is the last slot of its sector"
        );
        assert_eq!(index.fit_across(21), None);
    }
}
