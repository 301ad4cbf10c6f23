//! Finds slots for sets in directories.
//!
//! A set lies within one sector if it fits, so that one write covers it. File entry and stream
//! extension are always in the same sector, because changes of size and time touch only them. The
//! rest of the sector after a new last set is marked unused: the directory then ends at a sector
//! border, and the next set fits into one sector.

use std::ops::Range;
use std::sync::Arc;

use forerun_io::usize_from;
use forerun_vfs::{Error, NodeId, Result};

use crate::dir::{self, Slots};
use crate::nodes::ROOT;
use crate::ondisk::{END_OF_CHAIN, ENTRY, kind};
use crate::session::Session;
use crate::store::group;

/// Smallest number of bytes by which a directory grows.
const PAGE: u64 = 4096;

/// Returns the bytes of `count` unused entries.
pub fn unused(count: u32) -> Vec<u8> {
    let mut entry = [0; ENTRY];
    entry[0] = kind::UNUSED;
    entry.repeat(usize_from(count.into()))
}

impl Session<'_> {
    /// Finds slots for a set of `count` entries, in the sector of `near` if possible. Grows the
    /// directory if it is full. The slots are still marked free afterwards.
    pub fn find_room(&mut self, dir: NodeId, count: u32, near: Option<u32>) -> Result<u32> {
        let per_sector = self.per_sector();
        if count > per_sector && self.state.pending.touched {
            // The parts of a long set are written in an earlier step than pending changes of these
            // slots.
            self.commit_before()?;
        }
        let index = self.index(dir)?;
        let fitting = match near {
            Some(near) => index.fit_in_sector(near, count),
            None => None,
        };
        let fitting = fitting.or_else(|| {
            if count <= per_sector {
                index.fit(count)
            } else {
                index.fit_across(count)
            }
        });
        match fitting {
            Some(slot) => Ok(slot),
            None => self.extend(dir, count),
        }
    }

    /// Returns slots beyond the end of the directory, and moves the end to the next sector border.
    fn extend(&mut self, dir: NodeId, count: u32) -> Result<u32> {
        let per = self.per_sector();
        let index = self.index(dir)?;
        let end = index.end;
        let left = end.next_multiple_of(per) - end;
        let skip = if left < count { left } else { 0 };
        let (start, slots) = (end + skip, index.slots);
        let new_end = (start + count).next_multiple_of(per);
        if start + count > slots {
            self.grow_directory(dir, start + count - slots)?;
        }
        self.clear_sector(dir, new_end)?;
        if count > per {
            self.move_end(dir, end..new_end - per)?;
            // The slots between the set and the end of its last sector.
            let tail = new_end - (start + count);
            self.write_slots(
                dir,
                start + count,
                &unused(tail),
                group::BEHIND,
                group::BEHIND,
            )?;
        } else {
            if skip > 0 {
                // Written in an earlier step, because readers stop at the first slot that was never
                // used.
                self.clear_sector(dir, start)?;
                self.write_slots(dir, end, &unused(skip), group::BEHIND, group::BEHIND)?;
            }
            // The set overwrites a part of this sector in the same step, or in a later step if it
            // is moved.
            let sector = unused(new_end - start);
            self.write_slots(dir, start, &sector, group::ENTRIES, group::ENTRIES)?;
        }
        let index = self.index(dir)?;
        index.end = new_end;
        index.release(end, new_end - end);
        Ok(start)
    }

    /// Marks the slots for a set of several sectors unused, one sector after the other. No part of
    /// the set may lie beyond the end of the directory, where `fsck.exfat` and Linux accept only
    /// zeros, or beyond the length in the directory's own set.
    fn move_end(&mut self, dir: NodeId, slots: Range<u32>) -> Result<()> {
        let per = self.per_sector();
        let mut at = slots.start;
        // This also commits the new length of a directory that has grown.
        self.commit_before()?;
        while at < slots.end {
            let next = ((at / per + 1) * per).min(slots.end);
            self.write_slots(dir, at, &unused(next - at), group::ENTRIES, group::ENTRIES)?;
            self.commit_before()?;
            at = next;
        }
        Ok(())
    }

    /// Clears the sector at `slot`, beyond the end of the directory, if its first entry is not
    /// zero: readers will look for the end there.
    fn clear_sector(&mut self, dir: NodeId, slot: u32) -> Result<()> {
        let (per, chain) = (self.per_sector(), self.chain(dir)?);
        let mut slots = Slots::new(self.volume, &chain, Some(dir));
        match slots.entry(slot)? {
            Some(entry) if entry[0] != kind::END => {
                let zeros = vec![0; usize_from(per.into()) * ENTRY];
                self.write_slots(dir, slot, &zeros, group::ALLOCATE, group::ALLOCATE)
            }
            _ => Ok(()),
        }
    }

    /// Adds clusters for at least `slots` more slots.
    fn grow_directory(&mut self, dir: NodeId, slots: u32) -> Result<()> {
        if dir != ROOT {
            let node = self.load_to_change(dir)?;
            if node.place.is_some_and(|p| self.state.pending.arrives(p)) {
                // The directory's set and the next set in it would be written in the same step. A
                // power cut could leave the next set beyond the length of the directory, so the
                // directory's set is committed first.
                self.commit_before()?;
            }
        }
        let boot = &self.volume.boot;
        let per_cluster = u32::try_from(boot.cluster_size() / 32).unwrap_or(1 << 20);
        let count = slots.div_ceil(per_cluster);
        let chain = self.chain(dir)?;
        let len = u64::from(chain.clusters() + count) << boot.cluster_bits;
        if len > crate::ondisk::MAX_DIRECTORY - PAGE {
            return Err(Error::NoSpace);
        }
        // A directory with small clusters grows by a page, so that it grows less often.
        let wished = u32::try_from(PAGE / boot.cluster_size())
            .unwrap_or(1)
            .max(count);
        let clusters = match self.grow_chain(dir, chain.clusters() + wished) {
            Err(Error::NoSpace) => self.grow_chain(dir, chain.clusters() + count)?,
            grown => grown?,
        };
        let len = u64::from(clusters.clusters()) << boot.cluster_bits;
        for index in chain.clusters()..clusters.clusters() {
            if let Some((cluster, _)) = clusters.locate(index) {
                self.clear_cluster(cluster)?;
            }
        }
        if dir != ROOT {
            let mut node = self.load(dir)?;
            let mut data = node.set.data();
            data.first = clusters.first();
            data.len = len;
            data.contiguous = clusters.is_contiguous();
            node.set.set_data(data, len);
            self.keep_chain(dir, clusters, false);
            self.update(&node)?;
        } else {
            self.keep_chain(dir, clusters, false);
        }
        let slots = self.volume.slots(&*self.chain(dir)?);
        self.index(dir)?.slots = slots;
        Ok(())
    }

    /// Writes entries from `slot` on: the entries of the first sector in the group `first`, the
    /// others in the group `behind`.
    pub fn write_slots(
        &mut self,
        dir: NodeId,
        slot: u32,
        bytes: &[u8],
        first: forerun_io::Group,
        behind: forerun_io::Group,
    ) -> Result<()> {
        let (per, chain) = (self.per_sector(), self.chain(dir)?);
        let (mut slot, mut rest, mut group) = (slot, bytes, first);
        while !rest.is_empty() {
            let room = usize_from((per - slot % per).into()) * ENTRY;
            let (now, then) = rest.split_at(room.min(rest.len()));
            let offset = dir::position(self.volume, &chain, slot);
            let offset = offset.ok_or(Error::StaleNode(dir))?;
            self.write(group, offset, now)?;
            slot += u32::try_from(now.len() / ENTRY).unwrap_or(u32::MAX);
            (rest, group) = (then, behind);
        }
        Ok(())
    }

    /// Allocates clusters until the node has `clusters`, and returns its chain. Writes FAT links
    /// only for the root directory and for a chain that is not contiguous. Does not update the
    /// entry set of the file. If the space does not suffice, nothing is allocated.
    pub fn grow_chain(&mut self, id: NodeId, clusters: u32) -> Result<Arc<crate::chain::Chain>> {
        let old = self.chain(id)?;
        let is_chained = match id {
            ROOT => true,
            _ => {
                let data = self.load(id)?.set.data();
                data.first != 0 && !data.contiguous
            }
        };
        let goal = old.last().and_then(|last| last.checked_add(1));
        let runs = self.take(clusters - old.clusters(), goal)?;
        let mut chain = old.as_ref().clone();
        for &(cluster, count) in &runs {
            chain.push(cluster, count);
        }
        // A contiguous chain needs no FAT links, because its set says that it is contiguous.
        if id == ROOT || !chain.is_contiguous() {
            if self.state.pending.cut_nodes.contains(&id) {
                // The chain on the device is still the longer one from before the truncation.
                self.commit(false)?;
            }
            let was_linked = (is_chained && !self.was_flipped(id, &old)) || id == ROOT;
            let from = if was_linked { old.clusters() } else { 0 };
            self.link(&chain, from)?;
            // Links refer to these clusters, so they are not fresh: when they are freed, they stay
            // marked used until no link refers to them.
            let linked = chain.runs().iter().map(|run| (run.cluster, run.count));
            let linked: Vec<_> = match from {
                0 => linked.collect(),
                _ => runs,
            };
            for (cluster, count) in linked {
                self.state.pending.fresh.split(cluster, count);
            }
        }
        Ok(Arc::new(chain))
    }

    /// Returns whether the FAT may lack links of a chain that is no longer contiguous: clusters
    /// were added while all clusters were adjacent, and the set on the device does not say so yet.
    fn was_flipped(&self, id: NodeId, chain: &crate::chain::Chain) -> bool {
        self.is_ahead(id) && chain.is_contiguous()
    }

    /// Writes the FAT links of a chain from cluster number `from` on. The words of the new clusters
    /// are written first; the link to them is a step of its own.
    fn link(&mut self, chain: &crate::chain::Chain, from: u32) -> Result<()> {
        let fat = self.volume.boot.active_fat();
        let mut index = from;
        while let Some((cluster, count)) = chain.locate(index) {
            // At most 64 KiB of words at once.
            let count = count.min(16 << 10);
            let mut words = Vec::with_capacity(usize_from(count.into()) * 4);
            for number in 1..=count {
                let next = chain.locate(index + number);
                let next = next.map_or(END_OF_CHAIN, |(next, _)| next);
                words.extend(next.to_le_bytes());
            }
            self.write(group::ALLOCATE, fat + u64::from(cluster) * 4, &words)?;
            index += count;
        }
        let join = from.checked_sub(1).and_then(|index| chain.locate(index));
        if let Some((cluster, _)) = join
            && let Some((next, _)) = chain.locate(from)
        {
            let at = fat + u64::from(cluster) * 4;
            self.write(group::LINK, at, &next.to_le_bytes())?;
        }
        Ok(())
    }
}
