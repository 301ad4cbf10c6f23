//! Repairs all directories, entry by entry.

use std::rc::Rc;

use forerun_io::u64_from;
use forerun_vfs::{Bound, Error, Result};

use super::data;
use super::fields::{self, Doubt, SetPlace};
use super::names::Names;
use super::report::Kind;
use super::salvage::{self, Read, SalvagedSet};
use super::secondary;
use super::work::Work;
use crate::chain::Chain;
use crate::dir::{Found, Slots};
use crate::entry_set::EntrySet;
use crate::error::Check;
use crate::moving::{self, POINTER_AT, POINTER_LEN};
use crate::ondisk::{ENTRY, kind};
use crate::place::Place;
use crate::steps::Step;
use crate::volume::Volume;

struct PendingDirectory {
    chain: Chain,
    step: Option<Rc<Step>>,
}

/// The state of the walk of one directory.
struct Walk<'v> {
    volume: &'v Volume,
    chain: &'v Chain,
    path: Vec<u8>,
    is_root: bool,
    slots: Slots<'v>,
    names: Names,
    /// Subdirectories found so far, with name and clusters.
    below: Vec<(Vec<u8>, Chain)>,
}

/// Repairs all directories of the tree, without recursion.
pub fn walk(work: &mut Work<'_, '_>, root: Chain) -> Result<()> {
    let mut left = vec![PendingDirectory {
        chain: root,
        step: None,
    }];
    while let Some(directory) = left.pop() {
        let depth = directory.step.as_ref().map_or(0, |step| step.depth);
        if depth > work.volume.limits.depth {
            let limit = u64_from(work.volume.limits.depth);
            return Err(Error::limit(
                Bound::Depth,
                "depth of the directory tree",
                limit,
            ));
        }
        for (name, chain) in one(work, &directory)? {
            let step = Some(Step::below(directory.step.as_ref(), name));
            left.push(PendingDirectory { chain, step });
        }
    }
    Ok(())
}

/// Repairs one directory, and returns its subdirectories.
fn one(work: &mut Work<'_, '_>, directory: &PendingDirectory) -> Result<Vec<(Vec<u8>, Chain)>> {
    let volume = Rc::clone(&work.volume);
    let mut walk = Walk {
        volume: &volume,
        chain: &directory.chain,
        path: directory
            .step
            .as_ref()
            .map(|step| step.path())
            .unwrap_or_default(),
        is_root: directory.step.is_none(),
        slots: Slots::new(&volume, &directory.chain, None),
        names: Names::default(),
        below: Vec::new(),
    };
    let mut slot = 0;
    while let Some(next) = walk.item(work, slot)? {
        slot = next;
        work.breathe()?;
        let limits = &volume.limits;
        if u64_from(walk.names.len()) > limits.dir_entries {
            return Err(Error::limit(
                Bound::Entries,
                "entries of a directory",
                limits.dir_entries,
            ));
        }
        if work.desk.summary.entries > limits.tree_entries {
            let limit = limits.tree_entries;
            return Err(Error::limit(
                Bound::Entries,
                "entries of all directories",
                limit,
            ));
        }
    }
    Ok(walk.below)
}

impl Walk<'_> {
    /// Repairs the item that begins at `slot` and returns the slot of the next item; `None` at the
    /// end.
    fn item(&mut self, work: &mut Work<'_, '_>, slot: u32) -> Result<Option<u32>> {
        let Some(entry) = self.slots.entry(slot)? else {
            return Ok(None);
        };
        let (found, next) = (entry[0], slot + 1);
        if found == kind::FILE {
            return self.file(work, slot).map(Some);
        }
        if found == kind::UNUSED {
            return self.departed(work, slot, &entry).map(Some);
        }
        if let Some(set) = salvage::with_type(&mut self.slots, slot)? {
            let need = kind::FILE;
            let check = Check::SetOrder {
                index: 0,
                found,
                need,
            };
            let how = "restore the entry as its checksum says";
            let entries = u32::try_from(set.entries()).unwrap_or(1);
            let wrong = Some((Kind::SetForm, check, how));
            let (is_loose, is_nameless) = (false, false);
            return self
                .set(
                    work,
                    slot,
                    SalvagedSet {
                        set,
                        entries,
                        wrong,
                        is_loose,
                        is_nameless,
                    },
                )
                .map(Some);
        }
        let check = match found {
            kind::END => return self.end(work, slot),
            found if found & kind::IN_USE == 0 => return Ok(Some(next)),
            kind::IN_USE => Some((Kind::Entry, Check::EntryType { found })),
            found if found & kind::SECONDARY != 0 => {
                Some((Kind::LostEntry, Check::Stray { found }))
            }
            found if found & kind::BENIGN != 0 => {
                return self.benign(work, slot).map(Some);
            }
            kind::BITMAP | kind::UPCASE | kind::LABEL if self.is_root => None,
            found if self.is_root => Some((Kind::Unknown, Check::UnknownEntry { found })),
            found => Some((Kind::Entry, Check::Misplaced { found })),
        };
        if let Some((kind, check)) = check {
            let at = (check, self.at(slot));
            if work.ask(kind, self.path(), at, "mark it unused") {
                self.mark_unused(work, slot, 1)?;
            }
        }
        Ok(Some(next))
    }

    fn path(&self) -> Option<&[u8]> {
        Some(&self.path)
    }

    fn at(&self, slot: u32) -> u64 {
        self.slots.position(slot).unwrap_or(0)
    }

    fn file(&mut self, work: &mut Work<'_, '_>, slot: u32) -> Result<u32> {
        match salvage::read(&mut self.slots, slot)? {
            Read::Set(taken) => self.set(work, slot, *taken),
            Read::Lost(check) => {
                let at = (check, self.at(slot));
                if work.ask(Kind::LostSet, self.path(), at, "give it up") {
                    work.desk.gave_up = true;
                    self.mark_unused(work, slot, 1)?;
                }
                Ok(slot + 1)
            }
        }
    }

    /// Repairs a set, and returns the slot of the next entry.
    fn set(&mut self, work: &mut Work<'_, '_>, slot: u32, taken: SalvagedSet) -> Result<u32> {
        let (at, next) = (self.at(slot), slot + taken.entries);
        let directory = self.path.clone();
        let here = SetPlace {
            chain: self.chain,
            directory: &directory,
            slot,
            at,
        };
        work.desk.summary.entries += 1;
        let before = taken.set.clone();
        let is_wrong = taken.wrong.is_some();
        let doubt = match taken.wrong {
            _ if taken.is_nameless => Doubt::Nameless,
            _ if taken.is_loose => Doubt::Damaged,
            _ => Doubt::None,
        };
        if let Some((kind, check, how)) = taken.wrong {
            let path = fields::path_of(&here, &before);
            if !work.ask(kind, Some(&path), (check, at), how) {
                // The set is not checked further, but it keeps its clusters.
                return self.untouched(work, &before, next);
            }
            // The location of its data may be wrong, and its lost entries may have had clusters.
            work.desk.gave_up |= taken.is_loose;
        }
        let set = self.arrived(work, before.clone(), at)?;
        let set = fields::name(work, &here, &mut self.names, set, doubt)?;
        let set = fields::others(work, &here, set);
        let set = secondary::unknown(work, &here, set);
        let set = secondary::vendors(work, self.volume, &here, set)?;
        let settled = data::settle(work, &here, set, doubt)?;
        if is_wrong || settled.set != before {
            self.put(work, slot, taken.entries, &settled.set)?;
        }
        if let Some(chain) = settled.chain {
            let name = crate::name::to_bytes(&settled.set.name());
            self.below.push((name, chain));
        }
        Ok(next)
    }

    /// Claims the clusters of a set that stays unrepaired, so that nothing else gets them.
    fn untouched(&mut self, work: &mut Work<'_, '_>, set: &EntrySet, next: u32) -> Result<u32> {
        let data = set.data();
        if self.volume.boot.has_cluster(data.first) && data.len > 0 {
            let chain = super::room::lenient(self.volume, data)?;
            work.claimed.set_all(&chain);
        }
        Ok(next)
    }

    /// Repairs a benign primary entry with its secondary entries.
    fn benign(&mut self, work: &mut Work<'_, '_>, slot: u32) -> Result<u32> {
        let Some((Found::Benign { allocations, .. }, next)) = self.slots.next_item(slot)? else {
            return Ok(slot + 1);
        };
        let path = self.path.clone();
        let mut is_wrong = false;
        for &data in &allocations {
            is_wrong |= secondary::claim(work, self.volume, data, &path, self.at(slot))?;
        }
        if is_wrong {
            // The other allocations have no owner from now on.
            work.desk.gave_up |= allocations.len() > 1;
            self.mark_unused(work, slot, next - slot)?;
        }
        Ok(next)
    }

    /// Clears the pointer of a moved set after nothing points back to it.
    fn arrived(&self, work: &mut Work<'_, '_>, set: EntrySet, at: u64) -> Result<EntrySet> {
        if set.pointer() == 0 || !self.volume.recovers || work.dry {
            return Ok(set);
        }
        let from = Place::of_pointer(set.pointer());
        let place = Place {
            offset: at,
            far: false,
        };
        let mut entry = [0; ENTRY];
        if self.volume.boot.cluster_of(from.offset).is_some() {
            self.volume.read(from.offset, &mut entry)?;
        }
        let points = Place::of_pointer(crate::entry_set::pointer(&entry));
        if entry[0] == kind::UNUSED && points.offset == place.offset {
            // The next round clears it.
            work.again = true;
            return Ok(set);
        }
        let mut set = set;
        set.set_pointer(0);
        work.again = true;
        Ok(set)
    }

    /// Repairs a set whose move may have been interrupted, starting from an unused entry.
    fn departed(&mut self, work: &mut Work<'_, '_>, slot: u32, entry: &[u8; ENTRY]) -> Result<u32> {
        if !moving::may_be_stranded(self.volume, entry) {
            return Ok(slot + 1);
        }
        match self.slots.next_item(slot)? {
            Some((Found::Stranded(set), next)) => {
                let check = Check::Stranded;
                let entries = next - slot;
                let wrong = Some((Kind::Move, check, "put it back where it was"));
                let (is_loose, is_nameless) = (false, false);
                self.set(
                    work,
                    slot,
                    SalvagedSet {
                        set,
                        entries,
                        wrong,
                        is_loose,
                        is_nameless,
                    },
                )
            }
            Some((Found::Departed, next)) => {
                let at = self.at(slot) + POINTER_AT;
                work.again = true;
                work.edit(at, &[0; POINTER_LEN])?;
                Ok(next)
            }
            _ => Ok(slot + 1),
        }
    }

    /// Repairs the end of a directory, and clears entries beyond it.
    fn end(&mut self, work: &mut Work<'_, '_>, end: u32) -> Result<Option<u32>> {
        let (mut slot, mut last, mut first) = (end + 1, None, None);
        while let Some(entry) = self.slots.entry(slot)? {
            if entry[0] != kind::END {
                first = first.or(Some((slot, entry[0])));
                last = Some(slot);
                if entry[0] == kind::FILE && self.is_orphan(work, slot)? {
                    return self.reopen(work, end, slot);
                }
            }
            slot += 1;
        }
        let (Some((first, found)), Some(last)) = (first, last) else {
            return Ok(None);
        };
        let at = (Check::BehindEnd { found }, self.at(first));
        if work.ask(Kind::BehindEnd, self.path(), at, "clear what is there") {
            work.look_around()?;
            for slot in first..=last {
                let at = self.at(slot);
                // Shared clusters belong to another directory from now on.
                if !work.is_shared(at) {
                    work.edit(at, &[0; ENTRY])?;
                }
            }
        }
        Ok(None)
    }

    /// Returns whether the set at `slot`, beyond the end, is sound and has data that no other set
    /// has. If so, the end marker is wrong.
    fn is_orphan(&mut self, work: &mut Work<'_, '_>, slot: u32) -> Result<bool> {
        let Read::Set(taken) = salvage::read(&mut self.slots, slot)? else {
            return Ok(false);
        };
        let set = taken.set;
        let is_sound = taken.wrong.is_none()
            && set.stream().name_hash.get() == self.volume.upcase.hash(&set.name());
        if !is_sound || set.data().len == 0 {
            return Ok(false);
        }
        let Ok(chain) = crate::clusters::chain(self.volume, None, 0, set.data()) else {
            return Ok(false);
        };
        work.look_around()?;
        let mut free = super::room::Free::new(self.volume);
        for cluster in crate::bits::clusters(&chain) {
            if work.is_led_to(cluster) || !free.is_used(cluster)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Continues the directory beyond a wrong end marker.
    fn reopen(&mut self, work: &mut Work<'_, '_>, end: u32, slot: u32) -> Result<Option<u32>> {
        let at = (Check::EarlyEnd, self.at(end));
        if !work.ask(
            Kind::BehindEnd,
            self.path(),
            at,
            "let the directory go on there",
        ) {
            return Ok(None);
        }
        for slot in end..slot {
            let entry = self.slots.entry(slot)?;
            if entry.is_some_and(|entry| entry[0] == kind::END) {
                work.edit(self.at(slot), &[kind::UNUSED])?;
            }
        }
        Ok(Some(slot))
    }

    fn mark_unused(&self, work: &mut Work<'_, '_>, slot: u32, entries: u32) -> Result<()> {
        for slot in slot..slot + entries {
            let Some(at) = self.slots.position(slot) else {
                continue;
            };
            let mut entry = [0];
            self.volume.read(at, &mut entry)?;
            // 0 would mark the end of the directory.
            let kind = entry.map(|kind| match kind & !kind::IN_USE {
                kind::END => kind::UNUSED,
                kind => kind,
            });
            work.edit(at, &kind)?;
        }
        Ok(())
    }

    /// Overwrites `entries` entries from `slot` on with a set, and marks the remaining ones unused.
    fn put(&self, work: &mut Work<'_, '_>, slot: u32, entries: u32, set: &EntrySet) -> Result<()> {
        let mut at = slot;
        for entry in set.bytes().chunks_exact(ENTRY) {
            if let Some(offset) = self.slots.position(at) {
                work.edit(offset, entry)?;
            }
            at += 1;
        }
        let end = slot + entries;
        if at < end {
            self.mark_unused(work, at, end - at)
        } else {
            Ok(())
        }
    }
}
