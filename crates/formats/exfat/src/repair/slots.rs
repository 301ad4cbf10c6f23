//! Finds slots in the root directory for entries that a repair adds.

use std::rc::Rc;

use forerun_vfs::Result;

use super::work::{LINK, TAKE, Work};
use crate::chain::Chain;
use crate::dir::{Slots, position};
use crate::moving;
use crate::ondisk::{END_OF_CHAIN, ENTRY, kind};

/// Unused entries of the root directory, all in one sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Within(u64),
    /// Slots from `start` on, beyond the directory's end at `end`.
    Behind {
        end: u32,
        start: u32,
    },
    /// A new cluster of the directory.
    Grown,
}

impl Work<'_, '_> {
    /// Finds `count` unused entries. Changes nothing.
    pub fn room_in_root(&self, root: &Chain, count: u32) -> Result<Room> {
        let volume = &self.volume;
        let per_sector = volume.boot.slots_per_sector();
        let mut slots = Slots::new(volume, root, None);
        let (mut slot, mut run) = (0_u32, 0_u32);
        let mut end = None;
        while let Some(entry) = slots.entry(slot)? {
            if slot % per_sector == 0 {
                run = 0;
            }
            if entry[0] == kind::END {
                end = Some(slot);
                break;
            }
            let is_free = entry[0] & kind::IN_USE == 0;
            run = if is_free && !moving::may_be_stranded(volume, &entry) {
                run + 1
            } else {
                0
            };
            slot += 1;
            if run == count
                && let Some(at) = position(volume, root, slot - count)
            {
                return Ok(Room::Within(at));
            }
        }
        if let Some(end) = end {
            let start = end - run;
            let start = if start % per_sector + count <= per_sector {
                start
            } else {
                end.div_ceil(per_sector) * per_sector
            };
            if start + count <= volume.slots(root) {
                return Ok(Room::Behind { end, start });
            }
        }
        Ok(Room::Grown)
    }

    /// Returns the position of `count` entries that [`room_in_root`](Self::room_in_root) found.
    /// Grows the directory if it is full, and returns `None` if that fails. The caller writes the
    /// entries before it asks for more.
    pub fn entries_at(&mut self, root: &Chain, room: Room, count: u32) -> Result<Option<u64>> {
        match room {
            Room::Within(at) => Ok(Some(at)),
            Room::Behind { end, start } => self.at_end(root, end, start, count),
            Room::Grown => self.grow(root),
        }
    }

    /// Moves the end of the directory beyond entries that are about to be written.
    fn at_end(&mut self, root: &Chain, end: u32, start: u32, count: u32) -> Result<Option<u64>> {
        let volume = Rc::clone(&self.volume);
        for slot in end..start {
            if let Some(at) = position(&volume, root, slot) {
                self.edit(at, &[kind::UNUSED])?;
            }
        }
        // Entries beyond the old end must stay beyond the new end.
        if let Some(at) = position(&volume, root, start + count) {
            self.write(TAKE, at, &[0; ENTRY])?;
        }
        Ok(position(&volume, root, start))
    }

    fn grow(&mut self, root: &Chain) -> Result<Option<u64>> {
        let (Some(new), Some(last)) = (self.take(1)?, root.last()) else {
            return Ok(None);
        };
        self.clear_cluster(new.first())?;
        let end = END_OF_CHAIN.to_le_bytes();
        self.write(TAKE, self.fat_at(new.first()), &end)?;
        self.write(LINK, self.fat_at(last), &new.first().to_le_bytes())?;
        self.directories.set_all(&new);
        Ok(Some(self.volume.boot.cluster_at(new.first())))
    }
}
