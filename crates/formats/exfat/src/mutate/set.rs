//! Adds, changes and removes entry sets in directories.

use forerun_io::{Group, usize_from};
use forerun_vfs::{Error, NodeId, Result, Timestamp};

use super::moves::SetToMove;
use super::room::unused;
use crate::dir;
use crate::entry_set::EntrySet;
use crate::nodes::ROOT;
use crate::ondisk::{ENTRY, kind};
use crate::place::Place;
use crate::session::{Node, Session};
use crate::store::group;
use crate::time::Stamp;

pub fn count(set: &EntrySet) -> u32 {
    u32::try_from(set.entries()).unwrap_or(u32::MAX)
}

/// Returns the bytes of a set with all entries marked unused.
pub fn unused_set(set: &EntrySet) -> Vec<u8> {
    let mut bytes = set.bytes().to_vec();
    for entry in bytes.chunks_exact_mut(ENTRY) {
        if let Some(kind) = entry.first_mut() {
            *kind &= !kind::IN_USE;
        }
    }
    bytes
}

impl Session<'_> {
    /// Converts a time to the form in entry sets.
    pub fn stamp(&self, time: Timestamp) -> Stamp {
        Stamp::from_timestamp(time, &self.volume.ownership.zone)
    }

    /// Loads a node whose set is about to change. If file entry and stream extension are in
    /// different sectors, moves the set first.
    pub fn load_to_change(&mut self, id: NodeId) -> Result<Node> {
        let mut node = self.load(id)?;
        if node.place.is_some_and(|place| self.is_split(place)) {
            self.after_moves()?;
            self.unsplit(&mut node)?;
        }
        self.forget_origin(&mut node)?;
        Ok(node)
    }

    /// Writes the first two entries of a changed set, or keeps the set of a nameless node in
    /// memory.
    pub fn update(&mut self, node: &Node) -> Result<()> {
        let Some(place) = node.place else {
            self.state.pending.keep_orphan(node.id, node.set.clone());
            return Ok(());
        };
        let group = if self.state.pending.arrives(place) {
            group::ARRIVE
        } else {
            group::ENTRIES
        };
        let pieces = dir::set_pieces(self.volume, node.id, place, 2)?;
        let mut rest = node.set.head().to_vec();
        for (offset, len) in pieces {
            let then = rest.split_off(usize_from(len).min(rest.len()));
            self.write(group, offset, &rest)?;
            rest = then;
        }
        Ok(())
    }

    /// Moves a set whose file entry and stream extension are in different sectors, as other drivers
    /// may write them, because one write cannot change both. The set stays if its directory is
    /// unknown.
    fn unsplit(&mut self, node: &mut Node) -> Result<()> {
        let Some((dir, place)) = self.state.nodes.parent(node.id).zip(node.place) else {
            return Ok(());
        };
        let (key, entries) = (self.volume.name_key(&node.set.name()), node.set.entries());
        let candidates: Vec<u32> = self.index(dir)?.candidates(key).collect();
        let chain = self.chain(dir)?;
        let mut candidates = candidates.into_iter();
        let here = |&slot: &u32| dir::place(self.volume, &chain, slot, entries) == Some(place);
        let Some(old) = candidates.find(here) else {
            return Ok(());
        };
        let slot = self.find_room(dir, count(&node.set), None)?;
        let set = node.set.clone();
        let from = SetToMove {
            dir,
            slot: old,
            place,
            set: &set,
        };
        let to = self.move_away(&from, dir, slot, None, &set)?;
        node.set.set_pointer(place.pointer());
        self.state.nodes.relocate(node.id, place, to);
        node.place = Some(to);
        Ok(())
    }

    /// Writes a set to free slots, and adds it to the index.
    pub fn put(&mut self, dir: NodeId, slot: u32, set: &EntrySet) -> Result<Place> {
        self.write_slots(dir, slot, set.bytes(), group::ENTRIES, group::BEHIND)?;
        self.enter(dir, slot, set)?;
        let chain = self.chain(dir)?;
        let place = dir::place(self.volume, &chain, slot, set.entries());
        place.ok_or(Error::StaleNode(dir))
    }

    /// Adds a set to the index.
    pub fn enter(&mut self, dir: NodeId, slot: u32, set: &EntrySet) -> Result<()> {
        let (key, entries) = (self.volume.name_key(&set.name()), count(set));
        let index = self.index(dir)?;
        index.take(slot, entries);
        index.add(key, slot);
        Ok(())
    }

    /// Removes a set from its slots and from the index. Slots that are written in a late step
    /// become free with the next commit.
    pub fn take_away(
        &mut self,
        dir: NodeId,
        slot: u32,
        set: &EntrySet,
        groups: (Group, Group),
    ) -> Result<()> {
        self.write_slots(dir, slot, &unused_set(set), groups.0, groups.1)?;
        let (key, entries) = (self.volume.name_key(&set.name()), count(set));
        let per = self.per_sector();
        let in_first = (per - slot % per).min(entries);
        let index = self.index(dir)?;
        index.remove(key, slot);
        let late = if groups.0 == group::ENTRIES {
            index.release(slot, in_first);
            (slot + in_first, entries - in_first)
        } else {
            (slot, entries)
        };
        if groups.0 != group::ENTRIES {
            self.keep_until_commit(set);
        }
        if late.1 > 0 {
            self.state.pending.late_slots.push((dir, late.0, late.1));
        }
        Ok(())
    }

    /// Overwrites a set with another one, which is in a single sector and not shorter.
    pub fn put_over(
        &mut self,
        dir: NodeId,
        slot: u32,
        old: &EntrySet,
        set: &EntrySet,
    ) -> Result<Place> {
        self.write_over(dir, slot, old, set, group::ENTRIES)?;
        let chain = self.chain(dir)?;
        let place = dir::place(self.volume, &chain, slot, set.entries());
        place.ok_or(Error::StaleNode(dir))
    }

    /// Like [`put_over`](Self::put_over), in the step `group`.
    pub fn write_over(
        &mut self,
        dir: NodeId,
        slot: u32,
        old: &EntrySet,
        set: &EntrySet,
        group: Group,
    ) -> Result<()> {
        let spare = count(old) - count(set);
        let bytes = [set.bytes(), &unused(spare)].concat();
        self.write_slots(dir, slot, &bytes, group, group)?;
        let (old_key, key) = (
            self.volume.name_key(&old.name()),
            self.volume.name_key(&set.name()),
        );
        let after = slot + count(set);
        let index = self.index(dir)?;
        index.remove(old_key, slot);
        index.add(key, slot);
        if spare > 0 {
            self.state.pending.late_slots.push((dir, after, spare));
        }
        Ok(())
    }

    /// Returns whether a set lies within one sector.
    pub fn is_whole(&self, slot: u32, set: &EntrySet) -> bool {
        let per = self.per_sector();
        slot % per + count(set) <= per
    }

    /// Sets the modification time of a directory.
    pub fn touch(&mut self, dir: NodeId, time: Timestamp) -> Result<()> {
        if dir == ROOT {
            return Ok(());
        }
        let mut node = self.load(dir)?;
        if node.place.is_some_and(|place| self.is_split(place)) {
            // The time is not worth a move of the set.
            return Ok(());
        }
        let stamp = self.stamp(time);
        node.set.set_modified(stamp);
        self.update(&node)
    }

    /// Fails unless names may be created in a directory: with `NotFound` if it was removed, and
    /// with `Corrupt` if it is damaged, unless the options tolerate damage.
    pub fn changeable(&mut self, dir: NodeId) -> Result<()> {
        if self.state.pending.orphan(dir).is_some() {
            return Err(Error::NotFound);
        }
        if dir != ROOT {
            self.load(dir)?.recognized()?;
        }
        let goes_on = self.store.is_some_and(|store| store.continue_on_error);
        match &self.index(dir)?.damaged {
            Some(error) if !goes_on => Err(error.clone()),
            _ => Ok(()),
        }
    }
}
