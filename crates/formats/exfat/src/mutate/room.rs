//! Room for sets in directories.
//!
//! A set lies within one sector wherever it fits into one, so that it is written whole or not at all.
//! File entry and stream extension are always in the same sector: sizes and times change there. Behind a
//! set the rest of its sector is marked unused, so that a directory ends at a border between sectors and
//! the next set takes one sector only.

use std::ops::Range;
use std::sync::Arc;

use forerun_io::usize_from;
use forerun_vfs::{Error, NodeId, Result};

use crate::dir::{self, Slots};
use crate::nodes::ROOT;
use crate::ondisk::{END_OF_CHAIN, ENTRY, kind};
use crate::session::Session;
use crate::store::group;

/// Bytes that a directory grows by at least.
const PAGE: u64 = 4096;

/// Returns the bytes of `count` entries that are not in use.
pub fn unused(count: u32) -> Vec<u8> {
    let mut entry = [0; ENTRY];
    entry[0] = kind::UNUSED;
    entry.repeat(usize_from(count.into()))
}

impl Session<'_> {
    /// Finds slots for a set of `count` entries, in the sector of `near` if possible. Grows the
    /// directory if it has no room. The slots are still free afterwards.
    ///
    /// # Errors
    /// `NoSpace`, with no set changed; `Io`.
    pub fn find_room(&mut self, dir: NodeId, count: u32, near: Option<u32>) -> Result<u32> {
        let per_sector = self.per_sector();
        if count > per_sector && self.state.pending.touched {
            // Parts of a long set are written in an earlier step than pending changes of these slots.
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

    /// Returns slots behind the end of the directory, and moves the end to the next border between
    /// sectors.
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
            // The rest of the last sector behind the set.
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
                // In an earlier step, since readers stop at the first slot that was never used.
                self.clear_sector(dir, start)?;
                self.write_slots(dir, end, &unused(skip), group::BEHIND, group::BEHIND)?;
            }
            // The set covers a part of this sector, in the same step, or in a later one if it is moved.
            let sector = unused(new_end - start);
            self.write_slots(dir, start, &sector, group::ENTRIES, group::ENTRIES)?;
        }
        let index = self.index(dir)?;
        index.end = new_end;
        index.release(end, new_end - end);
        Ok(start)
    }

    /// Marks slots for a set of several sectors unused, one sector after the other. Parts of the set must
    /// be neither behind the end of the directory, where `fsck.exfat` and Linux allow only zeros, nor
    /// behind the length in the set of the directory.
    fn move_end(&mut self, dir: NodeId, slots: Range<u32>) -> Result<()> {
        let per = self.per_sector();
        let mut at = slots.start;
        // Also commits the length of a directory that has grown.
        self.commit_before()?;
        while at < slots.end {
            let next = ((at / per + 1) * per).min(slots.end);
            self.write_slots(dir, at, &unused(next - at), group::ENTRIES, group::ENTRIES)?;
            self.commit_before()?;
            at = next;
        }
        Ok(())
    }

    /// Clears the sector at `slot`, behind the end of the directory, if its first entry is not zero:
    /// readers are about to find the end there.
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
                // The set of the directory would arrive in the same step as the next set in it. It is
                // committed first: otherwise a power cut could leave that set behind the length of
                // the directory.
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
        // Small clusters are added by the page, so that a directory grows in fewer steps.
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

    /// Writes entries from `slot` on: those in the first sector in the group `first`, the others in
    /// `behind`.
    ///
    /// # Errors
    /// `Io`.
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

    /// Allocates clusters until the node has `clusters`, and returns its chain. Writes the links in the FAT only for
    /// the root directory and for a chain that is not contiguous, and does not update the file's directory entry set.
    ///
    /// # Errors
    /// `NoSpace` (nothing is then allocated), `Write` or `Io`.
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
        // A chain of adjacent clusters needs no FAT: the set says that it is contiguous.
        if id == ROOT || !chain.is_contiguous() {
            if self.state.pending.cut_nodes.contains(&id) {
                // On the device the chain is still the longer one from before the cut.
                self.commit(false)?;
            }
            let was_linked = (is_chained && !self.was_flipped(id, &old)) || id == ROOT;
            let from = if was_linked { old.clusters() } else { 0 };
            self.link(&chain, from)?;
            // Links refer to these clusters. So they are not fresh: freed, they stay marked used
            // until no link leads there.
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

    /// Returns whether the FAT may lack links of a chain that the set calls chained: clusters were added
    /// while all of them were adjacent, and the set on the device does not say so yet.
    fn was_flipped(&self, id: NodeId, chain: &crate::chain::Chain) -> bool {
        self.is_ahead(id) && chain.is_contiguous()
    }

    /// Writes the links of a chain from cluster number `from` on into the FAT. Words of the new clusters
    /// come first; the link that refers to them is a step of its own.
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
