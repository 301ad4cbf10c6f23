//! Renames nodes.
//!
//! A rename within one sector is one write. A rename across sectors is a move in steps, in which
//! the old name exists until the new one does: see [`moving`](crate::moving).

use forerun_vfs::{Bound, Error, FileType, NodeId, Result};

use super::moves::SetToMove;
use super::set::count;
use crate::entry_set::EntrySet;
use crate::name;
use crate::nodes::ROOT;
use crate::place::Place;
use crate::session::{FoundName, Session};
use crate::store::group;
use crate::time::now;

impl Session<'_> {
    /// Implements [`FileSystemMut::rename`](forerun_vfs::FileSystemMut::rename).
    pub fn rename(
        &mut self,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        replace: bool,
    ) -> Result<()> {
        let store = self.writable()?;
        self.after_moves_for(from, to)?;
        let mut source = self.find(from.0, from.1)?.ok_or(Error::NotFound)?;
        source.node.recognized()?;
        self.changeable(from.0)?;
        self.changeable(to.0)?;
        let units = name::for_new(to.1, store.keep_last_dots)?;
        let target = self.find(to.0, to.1)?;
        let mut target = target.filter(|target| target.node.id != source.node.id);
        let is_directory = source.node.set.file_type() == FileType::Directory;
        if is_directory {
            self.is_outside(source.node.id, to.0)?;
        }
        if let Some(target) = &target {
            let over = target.node.set.file_type() == FileType::Directory;
            match (is_directory, over) {
                _ if !replace => return Err(Error::Exists),
                (true, false) => return Err(Error::NotADirectory),
                (false, true) => return Err(Error::IsADirectory),
                (true, true) => self.is_empty(target.node.id)?,
                (false, false) => {}
            }
        }
        if target.is_none() && from.0 == to.0 && source.node.set.name() == units {
            return Ok(());
        }
        self.forget_origin(&mut source.node)?;
        let set = source.node.set.renamed(&units, &self.volume.upcase);
        if let Some(target) = &mut target {
            self.forget_origin(&mut target.node)?;
        }
        let replaced = match &target {
            Some(target) => self.clusters_to_free(&target.node)?,
            None => None,
        };
        let place = self.move_set(from.0, &source, to.0, target.as_ref(), &set)?;
        if let Some(target) = &target {
            self.nameless(&target.node, replaced)?;
        }
        if let Some(old) = source.node.place {
            self.state.nodes.relocate(source.node.id, old, place);
        }
        if is_directory {
            self.state.nodes.set_parent(source.node.id, to.0);
        }
        let time = now();
        self.touch(from.0, time)?;
        if to.0 != from.0 {
            self.touch(to.0, time)?;
        }
        Ok(())
    }

    /// Commits pending moves like [`after_moves`](Self::after_moves), but only if they can
    /// conflict. So any number of files can move to new names without a commit in between.
    fn after_moves_for(&mut self, from: (NodeId, &[u8]), to: (NodeId, &[u8])) -> Result<()> {
        let moves = &self.state.pending.moves;
        if moves.is_empty() {
            return Ok(());
        }
        let left = moves.iter().any(|moved| moved.dir == to.0);
        let source = self.find(from.0, from.1)?.ok_or(Error::NotFound)?;
        let is_file = source.node.set.file_type() == FileType::Regular;
        let arrives = source
            .node
            .place
            .is_some_and(|p| self.state.pending.arrives(p));
        if is_file && !left && !arrives && self.find(to.0, to.1)?.is_none() {
            Ok(())
        } else {
            self.commit_before()
        }
    }

    /// Writes the set to its new location, and removes the old set and the set that it replaces.
    fn move_set(
        &mut self,
        from: NodeId,
        source: &FoundName,
        to: NodeId,
        target: Option<&FoundName>,
        set: &EntrySet,
    ) -> Result<Place> {
        let old = &source.node.set;
        let place = source.node.place.ok_or(Error::NotFound)?;
        let here = SetToMove {
            dir: from,
            slot: source.slot,
            place,
            set: old,
        };
        match target {
            Some(target) if self.can_replace(target, set) => {
                if !self.is_near(from, source, to, target.slot, &target.node.set) {
                    return self.move_away(&here, to, target.slot, Some(target), set);
                }
                let place = self.put_over(to, target.slot, &target.node.set, set)?;
                let groups = (group::ENTRIES, group::ENTRIES);
                self.take_away(from, source.slot, old, groups)?;
                Ok(place)
            }
            None if from == to && self.is_whole(source.slot, old) && count(set) <= count(old) => {
                self.put_over(to, source.slot, old, set)
            }
            _ => {
                let near = match target {
                    Some(target) => Some(target.slot),
                    None => (from == to).then_some(source.slot),
                };
                let slot = self.find_room(to, count(set), near)?;
                let place = if self.is_near(from, source, to, slot, set) {
                    let place = self.put(to, slot, set)?;
                    let groups = (group::ENTRIES, group::ENTRIES);
                    self.take_away(from, source.slot, old, groups)?;
                    place
                } else {
                    self.move_away(&here, to, slot, None, set)?
                };
                if let Some(target) = target {
                    let groups = (group::LATE, group::LAST);
                    self.take_away(to, target.slot, &target.node.set, groups)?;
                }
                Ok(place)
            }
        }
    }

    /// Returns whether the old set and the new set are in the same sector.
    fn is_near(
        &self,
        dir: NodeId,
        entry: &FoundName,
        to: NodeId,
        slot: u32,
        set: &EntrySet,
    ) -> bool {
        let per = self.per_sector();
        let whole = self.is_whole(entry.slot, &entry.node.set) && self.is_whole(slot, set);
        dir == to && whole && entry.slot / per == slot / per
    }

    /// Fails with `IntoItself` if `dir` is `node` or below it.
    fn is_outside(&self, node: NodeId, dir: NodeId) -> Result<()> {
        let mut at = dir;
        for _ in 0..self.volume.limits.depth {
            if at == node {
                return Err(Error::IntoItself);
            }
            if at == ROOT {
                return Ok(());
            }
            at = self.state.nodes.parent(at).ok_or(Error::StaleNode(at))?;
        }
        let limit = forerun_io::u64_from(self.volume.limits.depth);
        Err(Error::limit(
            Bound::Depth,
            "depth of the directory tree",
            limit,
        ))
    }
}
