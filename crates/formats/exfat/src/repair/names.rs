//! Makes names valid, and unique in their directory.

use std::collections::{BTreeSet, HashMap};

use forerun_vfs::Result;

use crate::chain::Chain;
use crate::dir::Slots;
use crate::entry_set::{EntrySet, name_entries};
use crate::name;
use crate::ondisk::{NAME_UNITS, kind};
use crate::volume::Volume;

use super::salvage::{self, Read};

/// Replaces UTF-16 units that no name may contain.
const INSTEAD: u16 = 0x5F;
const DOT: u16 = 0x2E;

/// Returns the name with invalid units replaced, or `None` if the name is valid.
pub fn allowed(units: &[u16]) -> Option<Vec<u16>> {
    let mut new: Vec<u16> = units.to_vec();
    for unit in &mut new {
        if !name::is_allowed(*unit) {
            *unit = INSTEAD;
        }
    }
    if name::visible(&new).is_err() {
        // The names `.` and `..`.
        new.fill(INSTEAD);
    }
    (new != units).then_some(new)
}

/// The names of a directory that the repair has seen, and on demand all its names.
#[derive(Default)]
pub struct Names {
    met: BTreeSet<(u32, u32)>,
    /// Number of sets per key, of the whole directory.
    all: Option<HashMap<u32, u32>>,
}

impl Names {
    pub fn len(&self) -> usize {
        self.met.len()
    }

    /// Records that a set with this name is at `slot`.
    pub fn add(&mut self, volume: &Volume, units: &[u16], slot: u32) {
        let key = volume.name_key(units);
        self.met.insert((key, slot));
        if let Some(all) = &mut self.all {
            all.entry(key).or_insert(1);
        }
    }

    /// Returns whether the repair has seen a set with this name.
    pub fn has(&self, volume: &Volume, chain: &Chain, units: &[u16]) -> Result<bool> {
        let key = volume.name_key(units);
        for &(_, slot) in self.met.range((key, 0)..=(key, u32::MAX)) {
            let mut slots = Slots::new(volume, chain, None);
            if let Read::Set(taken) = salvage::read(&mut slots, slot)?
                && volume.upcase.same(&taken.set.name(), units)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether several sets of the directory have this name.
    pub fn are(&mut self, volume: &Volume, chain: &Chain, units: &[u16]) -> Result<bool> {
        if self.all.is_none() {
            self.all = Some(all(volume, chain)?);
        }
        let count = self
            .all
            .as_ref()
            .and_then(|all| all.get(&volume.name_key(units)));
        Ok(count.is_some_and(|&count| count > 1))
    }

    /// Returns a similar name that no set of the directory has, and that takes the same number of
    /// entries.
    pub fn unique(&mut self, volume: &Volume, chain: &Chain, units: &[u16]) -> Result<Vec<u16>> {
        if self.all.is_none() {
            self.all = Some(all(volume, chain)?);
        }
        let taken = |name: &[u16]| {
            let key = volume.name_key(name);
            self.all.as_ref().is_some_and(|all| all.contains_key(&key))
        };
        let mut number = 1_u64;
        loop {
            let name = numbered(units, number);
            // The limit ends the loop; no directory has so many names.
            if !taken(&name) || number > u64::from(u32::MAX) {
                return Ok(name);
            }
            number += 1;
        }
    }
}

/// Returns the name, or a similar one if the directory already has it.
pub fn fresh(volume: &Volume, chain: &Chain, units: &[u16]) -> Result<Vec<u16>> {
    let mut names = Names {
        met: BTreeSet::new(),
        all: Some(all(volume, chain)?),
    };
    let is_there = names.all.as_ref();
    if is_there.is_some_and(|all| all.contains_key(&volume.name_key(units))) {
        names.unique(volume, chain, units)
    } else {
        Ok(units.to_vec())
    }
}

/// Returns the keys of all names of a directory, with the number of sets of each.
fn all(volume: &Volume, chain: &Chain) -> Result<HashMap<u32, u32>> {
    let mut slots = Slots::new(volume, chain, None);
    let (mut keys, mut slot) = (HashMap::new(), 0_u32);
    while let Some(entry) = slots.entry(slot)? {
        let mut next = slot + 1;
        match entry[0] {
            kind::END => break,
            kind::FILE => {
                if let Read::Set(taken) = salvage::read(&mut slots, slot)? {
                    let key = volume.name_key(&taken.set.name());
                    *keys.entry(key).or_insert(0_u32) += 1;
                    next = slot + taken.entries;
                }
            }
            _ => {}
        }
        slot = next;
    }
    Ok(keys)
}

/// Returns `name~1.txt` for `name.txt`, in the same number of name entries.
fn numbered(units: &[u16], number: u64) -> Vec<u16> {
    let room = name_entries(units.len().max(1)) * NAME_UNITS;
    let room = room.min(crate::ondisk::MAX_NAME);
    let mark: Vec<u16> = format!("~{number}").encode_utf16().collect();
    let dot = units.iter().rposition(|&unit| unit == DOT);
    let dot = dot.filter(|&dot| dot > 0 && units.len() - dot + mark.len() < room);
    let (stem, end) = units.split_at(dot.unwrap_or(units.len()));
    let keep = room.saturating_sub(end.len() + mark.len()).min(stem.len());
    let stem = &stem[..keep];
    [stem, &mark, end].concat()
}

/// Returns the set under another name, which should take the same number of entries.
pub fn renamed(volume: &Volume, set: &EntrySet, units: &[u16]) -> EntrySet {
    set.renamed(units, &volume.upcase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(text: &str) -> Vec<u16> {
        text.encode_utf16().collect()
    }

    #[test]
    fn what_is_not_allowed_is_replaced() {
        for (name, expected) in [
            ("a/b", Some("a_b")),
            (".", Some("_")),
            ("..", Some("__")),
            ("a\0:", Some("a__")),
            ("fine.txt", None),
            ("...", None),
        ] {
            assert_eq!(allowed(&units(name)), expected.map(units), "{name:?}");
        }
    }

    #[test]
    fn numbers_fit_the_entries() {
        for (name, expected) in [
            ("a", "a~7"),
            ("name.txt", "name~7.txt"),
            (".hidden", ".hidden~7"),
            ("fifteen letters", "fifteen lette~7"),
            ("fifteen let.txt", "fifteen l~7.txt"),
            ("a.all of it ext", "a.all of it e~7"),
        ] {
            assert_eq!(numbered(&units(name), 7), units(expected));
        }
        assert_eq!(numbered(&[0x61; 255], u64::from(u32::MAX)).len(), 255);
    }
}
