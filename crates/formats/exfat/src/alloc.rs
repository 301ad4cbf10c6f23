//! The allocation bitmap: one bit per cluster, set if the cluster is in use.
//!
//! The driver reads the bitmap a mebibyte at a time, on first use. Only the number of free clusters
//! of each page stays in memory. A search starts where the last one ended.

use std::collections::BTreeMap;

use forerun_io::{u64_from, usize_from};
use forerun_vfs::{Error, Result};

use crate::error::Check;
use crate::ondisk::FIRST_CLUSTER;
use crate::store::{Store, group};
use crate::volume::Volume;

/// Clusters whose bits fill one page (4 KiB) of the bitmap.
const PAGE: u32 = 32_768;
const PAGE_BYTES: u64 = 4096;
/// Pages that one read fetches.
const BATCH: u32 = 256;
/// A search examines at most this many free runs, then takes the longest of them.
const LOOKED_AT: usize = 512;

pub type RunList = Vec<(u32, u32)>;

/// A set of clusters, as runs that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    runs: BTreeMap<u32, u32>,
}

impl Runs {
    /// Adds a run. None of its clusters may be in the set yet.
    pub fn add(&mut self, start: u32, count: u32) {
        let (mut start, mut count) = (start, count);
        if count == 0 {
            return;
        }
        if let Some((&before, &len)) = self.runs.range(..start).next_back()
            && before + len == start
        {
            self.runs.remove(&before);
            start = before;
            count += len;
        }
        if let Some(len) = self.runs.remove(&(start + count)) {
            count += len;
        }
        self.runs.insert(start, count);
    }

    /// Removes the clusters of a run from the set. Returns the runs that were in the set, and the
    /// runs that were not.
    pub fn split(&mut self, start: u32, count: u32) -> (RunList, RunList) {
        let (mut inside, mut outside) = (RunList::new(), RunList::new());
        let (mut at, end) = (start, start + count);
        while at < end {
            let before = self.runs.range(..=at).next_back();
            let covering = before.filter(|&(&first, &len)| first + len > at);
            if let Some((&first, &len)) = covering {
                let stop = end.min(first + len);
                self.runs.remove(&first);
                self.add_apart(first, at - first);
                self.add_apart(stop, first + len - stop);
                inside.push((at, stop - at));
                at = stop;
            } else {
                let next = self.runs.range(at..).next();
                let stop = next.map_or(end, |(&first, _)| first.min(end));
                outside.push((at, stop - at));
                at = stop;
            }
        }
        (inside, outside)
    }

    fn add_apart(&mut self, start: u32, count: u32) {
        if count > 0 {
            self.runs.insert(start, count);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.runs.iter().map(|(&start, &count)| (start, count))
    }

    pub fn total(&self) -> u64 {
        self.runs.values().map(|&count| u64::from(count)).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

#[derive(Default)]
pub struct Bitmap {
    /// Number of free clusters of each page; `None` if the page was not read yet.
    free: Vec<Option<u32>>,
    next: u32,
}

/// The allocator of an open volume. Its private methods count clusters from 0.
pub struct Allocator<'a> {
    pub volume: &'a Volume,
    pub store: &'a Store,
    pub bitmap: &'a mut Bitmap,
}

impl Allocator<'_> {
    /// Returns the number of clusters that are marked free.
    pub fn free(&mut self) -> Result<u64> {
        let mut all = 0_u64;
        for page in 0..self.pages() {
            all += u64::from(self.page_free(page)?);
        }
        Ok(all)
    }

    /// Like [`free`](Self::free), but returns `None` if a page would have to be read.
    pub fn known_free(&self) -> Option<u64> {
        let all = self.bitmap.free.iter().map(|free| free.map(u64::from));
        let whole = self.bitmap.free.len() == usize_from(self.pages().into());
        all.sum::<Option<u64>>().filter(|_| whole)
    }

    /// Allocates `count` clusters: first the free clusters at `goal`, then long free runs. Returns
    /// first cluster and count of each run. If the space does not suffice, nothing is allocated.
    pub fn allocate(&mut self, count: u32, goal: Option<u32>) -> Result<Vec<(u32, u32)>> {
        if self.known_free().is_some_and(|free| free < count.into()) {
            return Err(Error::NoSpace);
        }
        let mut taken: Vec<(u32, u32)> = Vec::new();
        let mut left = count;
        if let Some(goal) = goal.and_then(|goal| goal.checked_sub(FIRST_CLUSTER)) {
            let here = self.free_from(goal, left)?;
            left -= self.take(goal, here, &mut taken)?;
        }
        while left > 0 {
            let Some((start, len)) = self.search(left)? else {
                for (cluster, len) in taken {
                    self.set(cluster, len, false)?;
                }
                return Err(Error::NoSpace);
            };
            left -= self.take(start, len.min(left), &mut taken)?;
        }
        Ok(taken)
    }

    fn take(&mut self, start: u32, len: u32, taken: &mut Vec<(u32, u32)>) -> Result<u32> {
        if len == 0 {
            return Ok(0);
        }
        self.set(start + FIRST_CLUSTER, len, true)?;
        self.bitmap.next = start + len;
        match taken.last_mut() {
            Some((first, count)) if *first + *count == start + FIRST_CLUSTER => *count += len,
            _ => taken.push((start + FIRST_CLUSTER, len)),
        }
        Ok(len)
    }

    /// Returns the next free run of `count` clusters, or the longest run that the search examined.
    fn search(&mut self, count: u32) -> Result<Option<(u32, u32)>> {
        let clusters = self.volume.boot.clusters;
        let begin = match self.bitmap.next {
            next if next < clusters => next,
            _ => 0,
        };
        let mut best: Option<(u32, u32)> = None;
        let mut looked_at = 0;
        for (from, to) in [(begin, clusters), (0, begin)] {
            let mut at = from;
            while let Some(start) = self.find_free(at, to)? {
                let len = self.free_from(start, count)?;
                if len >= count {
                    return Ok(Some((start, len)));
                }
                if best.is_none_or(|(_, longest)| len > longest) {
                    best = Some((start, len));
                }
                looked_at += 1;
                if looked_at == LOOKED_AT {
                    return Ok(best);
                }
                at = start + len;
            }
        }
        Ok(best)
    }

    fn find_free(&mut self, from: u32, to: u32) -> Result<Option<u32>> {
        let mut at = from;
        while at < to {
            let page = at / PAGE;
            let end = page_end(at, to);
            if self.page_free(page)? > 0 {
                let bytes = self.page(page)?;
                if let Some(found) = next_bit(&bytes, at % PAGE, end - page * PAGE, false) {
                    return Ok(Some(page * PAGE + found));
                }
            }
            at = end;
        }
        Ok(None)
    }

    /// Returns the number of free clusters at `from`, at most `most`.
    fn free_from(&mut self, from: u32, most: u32) -> Result<u32> {
        let to = from + most.min(self.volume.boot.clusters - from);
        let mut at = from;
        while at < to {
            let page = at / PAGE;
            let end = page_end(at, to);
            if self.page_free(page)? == 0 {
                break;
            }
            let bytes = self.page(page)?;
            if let Some(used) = next_bit(&bytes, at % PAGE, end - page * PAGE, true) {
                return Ok(page * PAGE + used - from);
            }
            at = end;
        }
        Ok(at - from)
    }

    /// Returns the first cluster of the run that is marked free.
    pub fn first_free_in(&mut self, cluster: u32, count: u32) -> Result<Option<u32>> {
        let from = cluster - FIRST_CLUSTER;
        let found = self.find_free(from, from + count)?;
        Ok(found.map(|index| index + FIRST_CLUSTER))
    }

    /// Calls a visitor with first cluster and count of each free run within `clusters`.
    pub fn free_runs(
        &mut self,
        clusters: std::ops::Range<u32>,
        visit: &mut dyn FnMut(u32, u32) -> Result<()>,
    ) -> Result<()> {
        let to = clusters.end - FIRST_CLUSTER;
        let mut at = clusters.start - FIRST_CLUSTER;
        while let Some(start) = self.find_free(at, to)? {
            let len = self.free_from(start, to - start)?;
            visit(start + FIRST_CLUSTER, len)?;
            at = start + len;
        }
        Ok(())
    }

    /// Marks clusters used or free at once, without waiting for a commit. Nothing on the device may
    /// refer to these clusters.
    pub fn set(&mut self, cluster: u32, count: u32, used: bool) -> Result<()> {
        self.mark(cluster, count, used, group::ALLOCATE)
    }

    /// Marks clusters free. Fails with `Corrupt` if one is free already, but still marks the
    /// others.
    pub fn release(&mut self, cluster: u32, count: u32) -> Result<()> {
        let free = self.first_free_in(cluster, count)?;
        self.mark(cluster, count, false, group::FREE)?;
        match free {
            Some(cluster) => Err(Check::UsedFree { cluster }.at(None, self.position(cluster))),
            None => Ok(()),
        }
    }

    fn mark(
        &mut self,
        cluster: u32,
        count: u32,
        used: bool,
        group: forerun_io::Group,
    ) -> Result<()> {
        let from = cluster - FIRST_CLUSTER;
        let to = from + count;
        let mut at = from;
        while at < to {
            let page = at / PAGE;
            let end = page_end(at, to);
            let (first, last) = (at % PAGE, end - page * PAGE);
            let byte = u64::from(page) * PAGE_BYTES + u64::from(first / 8);
            let mut bytes = vec![0; usize_from((last.div_ceil(8) - first / 8).into())];
            self.volume
                .read_chain(&self.volume.bitmap, byte, &mut bytes)?;
            let before = ones(&bytes);
            set_bits(&mut bytes, first % 8, last - first / 8 * 8, used);
            let after = ones(&bytes);
            let mut rest: &[u8] = &bytes;
            let pieces = self
                .volume
                .pieces(&self.volume.bitmap, byte, u64_from(bytes.len()));
            for (offset, len) in pieces {
                let (now, then) = rest.split_at(usize_from(len));
                let written = self.store.back.write(group, offset, now);
                written.map_err(|error| Error::io(offset, now.len(), error))?;
                rest = then;
            }
            let slot = self.bitmap.free.get_mut(usize_from(page.into()));
            if let Some(known) = slot {
                // Another program has changed the bitmap if the count gets out of range. The page is
                // then unknown, and read again.
                let most = (self.volume.boot.clusters - page * PAGE).min(PAGE);
                *known = known
                    .and_then(|free| (free + before).checked_sub(after))
                    .filter(|&free| free <= most);
            }
            at = end;
        }
        Ok(())
    }

    fn position(&self, cluster: u32) -> u64 {
        let byte = u64::from((cluster - FIRST_CLUSTER) / 8);
        let pieces = self.volume.pieces(&self.volume.bitmap, byte, 1);
        pieces.first().map_or(0, |&(offset, _)| offset)
    }

    fn pages(&self) -> u32 {
        self.volume.boot.clusters.div_ceil(PAGE)
    }

    fn page_free(&mut self, page: u32) -> Result<u32> {
        let index = usize_from(page.into());
        if let Some(Some(free)) = self.bitmap.free.get(index) {
            return Ok(*free);
        }
        let pages = self.pages();
        self.bitmap.free.resize(usize_from(pages.into()), None);
        let first = page - page % BATCH;
        let last = (first + BATCH).min(pages);
        let start = u64::from(first) * PAGE_BYTES;
        let end = (u64::from(last) * PAGE_BYTES).min(self.len());
        // At most a batch of pages.
        let mut bytes = vec![0; usize_from(end - start)];
        self.volume
            .read_chain(&self.volume.bitmap, start, &mut bytes)?;
        let chunks = bytes.chunks(usize_from(PAGE_BYTES));
        let mut free = 0;
        for (number, chunk) in (first..last).zip(chunks) {
            let clusters = (self.volume.boot.clusters - number * PAGE).min(PAGE);
            let zeros = zeros(chunk, clusters);
            self.bitmap.free[usize_from(number.into())] = Some(zeros);
            if number == page {
                free = zeros;
            }
        }
        Ok(free)
    }

    fn len(&self) -> u64 {
        u64::from(self.volume.boot.clusters).div_ceil(8)
    }

    fn page(&self, page: u32) -> Result<Vec<u8>> {
        let start = u64::from(page) * PAGE_BYTES;
        let end = (start + PAGE_BYTES).min(self.len());
        let mut bytes = vec![0; usize_from(end - start)];
        self.volume
            .read_chain(&self.volume.bitmap, start, &mut bytes)?;
        Ok(bytes)
    }
}

fn page_end(at: u32, to: u32) -> u32 {
    at + (PAGE - at % PAGE).min(to - at)
}

fn ones(bytes: &[u8]) -> u32 {
    bytes.iter().map(|byte| byte.count_ones()).sum()
}

fn zeros(bytes: &[u8], bits: u32) -> u32 {
    let (whole, rest) = bytes.split_at(usize_from((bits / 8).into()));
    let mask = (1_u8 << (bits % 8)) - 1;
    let rest = rest.first().map_or(0, |rest| (!rest & mask).count_ones());
    whole.iter().map(|byte| byte.count_zeros()).sum::<u32>() + rest
}

/// Returns the first bit in `from..to` with the value `wanted`.
fn next_bit(bytes: &[u8], from: u32, to: u32, wanted: bool) -> Option<u32> {
    let skip = if wanted { 0x00 } else { 0xFF };
    let mut at = from;
    while at < to {
        let byte = bytes.get(usize_from((at / 8).into())).copied()?;
        if byte == skip {
            at = (at / 8 + 1) * 8;
            continue;
        }
        if (byte >> (at % 8) & 1 == 1) == wanted {
            return Some(at);
        }
        at += 1;
    }
    None
}

fn set_bits(bytes: &mut [u8], from: u32, to: u32, value: bool) {
    for (index, byte) in (0_u32..).zip(bytes.iter_mut()) {
        let low = from.saturating_sub(index * 8).min(8);
        let high = to.saturating_sub(index * 8).min(8);
        let below = |bits: u32| !u8::MAX.checked_shl(bits).unwrap_or(0);
        let mask = below(high) & !below(low);
        if value { *byte |= mask } else { *byte &= !mask }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits() {
        let mut bytes = [0; 3];
        set_bits(&mut bytes, 3, 18, true);
        assert_eq!(bytes, [0xF8, 0xFF, 0x03]);
        assert_eq!(zeros(&bytes, 24), 9);
        assert_eq!(zeros(&bytes, 19), 4);
        assert_eq!(next_bit(&bytes, 0, 24, true), Some(3));
        assert_eq!(next_bit(&bytes, 3, 24, false), Some(18));
        assert_eq!(next_bit(&bytes, 3, 18, false), None);
        set_bits(&mut bytes, 8, 16, false);
        assert_eq!(bytes, [0xF8, 0x00, 0x03]);
    }

    #[test]
    fn runs_merge_and_split() {
        let mut runs = Runs::default();
        runs.add(10, 5);
        runs.add(20, 5);
        runs.add(15, 5);
        assert_eq!(runs.iter().collect::<Vec<_>>(), [(10, 15)]);
        let (inside, outside) = runs.split(5, 10);
        assert_eq!((inside, outside), (vec![(10, 5)], vec![(5, 5)]));
        let (inside, outside) = runs.split(20, 10);
        assert_eq!((inside, outside), (vec![(20, 5)], vec![(25, 5)]));
        assert_eq!(runs.iter().collect::<Vec<_>>(), [(15, 5)]);
        assert_eq!(runs.total(), 5);
    }
}
