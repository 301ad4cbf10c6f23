//! The steps of a move of an entry set from one sector to another: see [`moving`](crate::moving).

use std::ops::Range;

use forerun_vfs::{Error, NodeId, Result};

use super::set::{count, unused_set};
use crate::change::Move;
use crate::dir;
use crate::entry_set::EntrySet;
use crate::moving::{self, POINTER_AT, POINTER_LEN};
use crate::ondisk::{ENTRY, kind};
use crate::place::Place;
use crate::session::{FoundName, Node, Session};
use crate::store::{Store, group};

/// A set with its directory, first slot and location.
pub struct SetToMove<'a> {
    pub dir: NodeId,
    pub slot: u32,
    pub place: Place,
    pub set: &'a EntrySet,
}

impl Session<'_> {
    /// Moves the set of a node to slots in another sector. The slots are free, or belong to the set
    /// that it replaces. `set` is the set to write there.
    pub fn move_away(
        &mut self,
        from: &SetToMove<'_>,
        to: NodeId,
        slot: u32,
        replaced: Option<&FoundName>,
        set: &EntrySet,
    ) -> Result<Place> {
        let chain = self.chain(to)?;
        let place = dir::place(self.volume, &chain, slot, set.entries());
        let place = place.ok_or(Error::StaleNode(to))?;
        // After a power cut between DEPART and ARRIVE, the driver restores `from`.
        self.keep_until_commit(from.set);
        if let Some(entry) = replaced {
            self.keep_until_commit(&entry.node.set);
        }
        let mut arriving = set.clone();
        arriving.set_pointer(from.place.pointer());
        match replaced {
            Some(entry) => self.overwrite(to, slot, &entry.node.set, &arriving)?,
            None => {
                let bytes = arriving.bytes();
                self.write_slots(to, slot, bytes, group::ARRIVE, group::BEHIND)?;
                self.enter(to, slot, set)?;
            }
        }
        self.depart(from, place)?;
        self.state.pending.moves.push(Move {
            dir: from.dir,
            from: from.place,
            to: place,
        });
        Ok(place)
    }

    /// Overwrites a set with another one. The caller has checked
    /// [`can_replace`](Self::can_replace).
    fn overwrite(&mut self, dir: NodeId, slot: u32, old: &EntrySet, set: &EntrySet) -> Result<()> {
        if self.is_whole(slot, old) {
            self.write_over(dir, slot, old, set, group::ARRIVE)
        } else {
            // The name is the same, so only the first two entries differ.
            self.write_slots(dir, slot, set.head(), group::ARRIVE, group::ARRIVE)
        }
    }

    /// Returns whether one write can replace a set with another.
    pub fn can_replace(&self, entry: &FoundName, set: &EntrySet) -> bool {
        let old = &entry.node.set;
        if self.is_whole(entry.slot, old) {
            count(set) <= count(old)
        } else {
            let names = |set: &EntrySet| set.bytes().get(2 * ENTRY..).map(<[u8]>::to_vec);
            names(set) == names(old)
        }
    }

    /// Marks a set unused, with a pointer to its new location `place`.
    fn depart(&mut self, from: &SetToMove<'_>, place: Place) -> Result<()> {
        let mut bytes = unused_set(from.set);
        let pointer = place.pointer().to_le_bytes();
        let field = bytes.iter_mut().skip(25).take(POINTER_LEN);
        for (to, byte) in field.zip(pointer) {
            *to = byte;
        }
        let key = self.volume.name_key(&from.set.name());
        self.index(from.dir)?.remove(key, from.slot);
        self.write_slots(from.dir, from.slot, &bytes, group::DEPART, group::LAST)?;
        let late = (from.dir, from.slot, count(from.set));
        self.state.pending.late_slots.push(late);
        Ok(())
    }

    /// Clears the pointers of moved sets after all new sets are on the device. The pointers of the
    /// old sets are cleared first: an old set whose pointer is not returned would be taken for the
    /// live copy.
    pub fn arrived(&mut self, store: &Store) -> Result<()> {
        let origins = self
            .state
            .pending
            .moves
            .iter()
            .map(|moved| moved.from.offset);
        for origin in origins.collect::<Vec<_>>() {
            self.write(group::LEFT, origin + POINTER_AT, &[0; POINTER_LEN])?;
        }
        let left = store.back.commit(&[group::LEFT]);
        left.map_err(|error| Error::write(error.offset, error.len, error.source))?;
        let moves = std::mem::take(&mut self.state.pending.moves);
        for moved in &moves {
            let id = moved.to.id();
            let mut set = dir::read_set(self.volume, id, moved.to)?;
            set.set_pointer(0);
            self.write(group::FREE, moved.to.offset, set.head())?;
        }
        Ok(())
    }

    /// Completes moves of a directory's sets that a power cut interrupted.
    pub fn end_moves(
        &mut self,
        dir: NodeId,
        stranded: &[(u32, EntrySet)],
        departed: &[u32],
    ) -> Result<()> {
        if self.writable().is_err() {
            return Ok(());
        }
        for (slot, set) in stranded {
            self.write_slots(dir, *slot, set.bytes(), group::ENTRIES, group::BEHIND)?;
        }
        let chain = self.chain(dir)?;
        for slot in departed {
            let place = dir::place(self.volume, &chain, *slot, 1);
            if let Some(place) = place.filter(|place| !self.state.pending.departs(*place)) {
                let at = place.offset + POINTER_AT;
                self.write(group::BEHIND, at, &[0; POINTER_LEN])?;
            }
        }
        Ok(())
    }

    /// Marks name entries unused that an interrupted removal left: only the first sector of their
    /// set was marked. Their slots are free after the next commit.
    pub fn clear_strays(&mut self, dir: NodeId, strays: &[u32]) -> Result<()> {
        if self.writable().is_err() || !self.volume.recovers {
            return Ok(());
        }
        let chain = self.chain(dir)?;
        for &slot in strays {
            let Some(at) = dir::position(self.volume, &chain, slot) else {
                continue;
            };
            let mut entry = [0];
            self.volume.read(at, &mut entry)?;
            self.write(group::BEHIND, at, &entry.map(|kind| kind & !kind::IN_USE))?;
            if let Some(index) = self.known_index(dir) {
                index.take(slot, 1);
            }
            self.state.pending.late_slots.push((dir, slot, 1));
        }
        Ok(())
    }

    /// Clears entries that a power cut left beyond the end of a directory. No system reads them,
    /// but `fsck.exfat` reports them as damage, and Linux refuses to use such slots.
    pub fn clear_behind_end(&mut self, dir: NodeId, slots: Range<u32>) -> Result<()> {
        if self.writable().is_err() || slots.is_empty() {
            return Ok(());
        }
        let zeros = vec![0; slots.len() * ENTRY];
        self.write_slots(dir, slots.start, &zeros, group::ALLOCATE, group::ALLOCATE)
    }

    /// Clears both pointers of a move that completed just before a power cut. Call it before the
    /// set changes, so that the old set is not taken for the live copy.
    pub fn forget_origin(&mut self, node: &mut Node) -> Result<()> {
        let (pointer, place) = (node.set.pointer(), node.place);
        let Some(place) = place.filter(|_| pointer != 0 && self.volume.recovers) else {
            return Ok(());
        };
        if self.state.pending.arrives(place) {
            return Ok(());
        }
        let origin = Place::of_pointer(pointer);
        if moving::points_to(self.volume, origin, kind::UNUSED, place)? {
            let at = origin.offset + POINTER_AT;
            self.write(group::BEHIND, at, &[0; POINTER_LEN])?;
        }
        node.set.set_pointer(0);
        Ok(())
    }

    /// Commits pending moves, before a change of names that they may conflict with.
    pub fn after_moves(&mut self) -> Result<()> {
        if self.state.pending.moves.is_empty() {
            Ok(())
        } else {
            self.commit_before()
        }
    }
}
