//! Allocates clusters during a repair: clusters that are marked free and that nothing refers to.
//!
//! The bitmap may be damaged. So before the first allocation, the repair collects all clusters that
//! entries refer to.

use std::rc::Rc;

use forerun_io::usize_from;
use forerun_vfs::Result;

use super::salvage::{self, Read};
use super::work::{TAKE, Work};
use crate::bits::Bits;
use crate::chain::Chain;
use crate::dir::{Found, Slots};
use crate::entry_set::{Allocation, EntrySet};
use crate::fat::Fat;
use crate::follow::follow;
use crate::ondisk::{BAD_CLUSTER, kind};
use crate::volume::Volume;

/// Bytes of the bitmap that one read fetches.
const WINDOW: usize = 64 << 10;

impl Work<'_, '_> {
    /// Allocates clusters, contiguous if possible; `None` if there are too few. Marks them used,
    /// and writes their chain if they are fragmented.
    pub fn take(&mut self, count: u32) -> Result<Option<Chain>> {
        let Some(chain) = self.find(count)? else {
            return Ok(None);
        };
        self.claimed.set_all(&chain);
        self.mark_taken(&chain)?;
        if !chain.is_contiguous() {
            self.write_chain(&chain)?;
        }
        Ok(Some(chain))
    }

    /// Returns whether `count` clusters can be allocated.
    pub fn has_room(&mut self, count: u32) -> Result<bool> {
        Ok(self.find(count)?.is_some())
    }

    fn find(&mut self, count: u32) -> Result<Option<Chain>> {
        self.look_around()?;
        let volume = Rc::clone(&self.volume);
        let mut free = Free::new(&volume);
        let mut pieces = Chain::default();
        let mut run = (0_u32, 0_u32);
        for cluster in self.claimed.all() {
            if self.is_led_to(cluster) || !free.is_free(cluster)? {
                continue;
            }
            run = match run {
                (first, len) if len > 0 && first + len == cluster => (first, len + 1),
                _ => (cluster, 1),
            };
            if pieces.clusters() < count {
                pieces.push(cluster, 1);
            }
            if run.1 == count {
                return Ok(Some(Chain::contiguous(run.0, count)));
            }
        }
        Ok((pieces.clusters() == count).then_some(pieces))
    }

    /// Returns whether a cluster is claimed, or an entry refers to it.
    pub fn is_led_to(&self, cluster: u32) -> bool {
        let reach = self.reach.as_ref();
        self.claimed.has(cluster) || reach.is_some_and(|reach| reach.all.has(cluster))
    }

    /// Returns a byte with bits for eight clusters that are claimed or referred to.
    pub fn met_byte(&self, index: u64) -> u8 {
        let reach = self.reach.as_ref();
        self.claimed.byte(index) | reach.map_or(0, |reach| reach.all.byte(index))
    }

    /// Returns whether a cluster is claimed, or several entries refer to it.
    pub fn is_disputed(&self, cluster: u32) -> bool {
        let reach = self.reach.as_ref();
        self.claimed.has(cluster) || reach.is_some_and(|reach| reach.twice.has(cluster))
    }

    /// Returns whether several entries refer to the cluster at an offset.
    pub fn is_shared(&self, offset: u64) -> bool {
        let cluster = self.volume.boot.cluster_of(offset).unwrap_or(0);
        let reach = self.reach.as_ref();
        reach.is_some_and(|reach| reach.twice.has(cluster))
    }

    /// Returns whether a file refers to a cluster.
    pub fn is_of_file(&self, cluster: u32) -> bool {
        let reach = self.reach.as_ref();
        reach.is_some_and(|reach| reach.files.has(cluster))
    }

    /// Collects the clusters that entries refer to, on the first call.
    pub fn look_around(&mut self) -> Result<()> {
        if self.reach.is_none() {
            self.reach = Some(reach(&self.volume)?);
        }
        Ok(())
    }

    /// Writes zeros to an allocated cluster.
    pub fn clear_cluster(&mut self, cluster: u32) -> Result<()> {
        let (start, size) = (
            self.volume.boot.cluster_at(cluster),
            self.volume.boot.cluster_size(),
        );
        // A cluster has at most 32 MiB; each write has at most 1 MiB.
        let zeros = vec![0; usize_from(size.min(1 << 20))];
        let mut at = 0;
        while at < size {
            self.write(TAKE, start + at, &zeros)?;
            at += forerun_io::u64_from(zeros.len());
        }
        Ok(())
    }
}

/// A sequential reader of the bitmap, and of the FAT for bad clusters.
pub struct Free<'a> {
    volume: &'a Volume,
    fat: Fat<'a>,
    start: u64,
    window: Vec<u8>,
}

impl<'a> Free<'a> {
    pub const fn new(volume: &'a Volume) -> Self {
        Self {
            volume,
            fat: Fat::new(volume),
            start: 0,
            window: Vec::new(),
        }
    }

    /// Returns a byte of the bitmap.
    pub fn byte(&mut self, index: u64) -> Result<u8> {
        let inside = index.checked_sub(self.start).map(usize_from);
        if let Some(&byte) = inside.and_then(|at| self.window.get(at)) {
            return Ok(byte);
        }
        let len = u64::from(self.volume.boot.clusters).div_ceil(8);
        let len = usize_from(len - index).min(WINDOW);
        let mut window = vec![0; len];
        let bitmap = &self.volume.bitmap;
        self.volume.read_chain(bitmap, index, &mut window)?;
        self.start = index;
        self.window = window;
        Ok(self.window.first().copied().unwrap_or(0))
    }

    pub fn is_used(&mut self, cluster: u32) -> Result<bool> {
        let index = cluster - crate::ondisk::FIRST_CLUSTER;
        let byte = self.byte(u64::from(index / 8))?;
        Ok(byte >> (index % 8) & 1 == 1)
    }

    pub fn is_bad(&mut self, cluster: u32) -> Result<bool> {
        Ok(self.fat.next(cluster)? == BAD_CLUSTER)
    }

    fn is_free(&mut self, cluster: u32) -> Result<bool> {
        Ok(!self.is_used(cluster)? && !self.is_bad(cluster)?)
    }
}

/// The clusters that entries refer to, sound or not.
pub struct Reach {
    all: Bits,
    /// Clusters that something other than a directory refers to.
    files: Bits,
    /// Clusters that several entries refer to.
    twice: Bits,
}

fn reach(volume: &Volume) -> Result<Reach> {
    let mut bits = Bits::new(volume.boot.clusters)?;
    let mut files = Bits::new(volume.boot.clusters)?;
    let mut twice = Bits::new(volume.boot.clusters)?;
    let mut entered = Bits::new(volume.boot.clusters)?;
    let root = follow(volume, volume.boot.root, None)?.chain;
    bits.set_all(&root);
    entered.set(root.first());
    let mut left = vec![root];
    while let Some(directory) = left.pop() {
        let mut slots = Slots::new(volume, &directory, None);
        let mut slot = 0_u32;
        while let Some(entry) = slots.entry(slot)? {
            let mut next = slot + 1;
            let set = match entry[0] {
                kind::FILE => match salvage::read(&mut slots, slot)? {
                    Read::Set(taken) => {
                        next = slot + taken.entries;
                        Some(taken.set)
                    }
                    Read::Lost(_) => None,
                },
                kind::UNUSED => stranded(volume, &mut slots, slot)?,
                kind::END => match salvage::with_type(&mut slots, slot)? {
                    None => break,
                    set => set,
                },
                _ => {
                    let set = salvage::with_type(&mut slots, slot)?;
                    if set.is_none()
                        && let Some((Found::Benign { allocations, .. }, behind)) =
                            slots.next_item(slot)?
                    {
                        for data in allocations {
                            let chain = spread(volume, Some(data), &mut bits, &mut twice)?;
                            files.set_all(&chain.unwrap_or_default());
                        }
                        next = behind;
                    }
                    set
                }
            };
            if let Some(set) = set {
                for data in set.other_allocations() {
                    let chain = spread(volume, Some(data), &mut bits, &mut twice)?;
                    files.set_all(&chain.unwrap_or_default());
                }
                let chain = spread(volume, Some(set.data()), &mut bits, &mut twice)?;
                let is_directory = set.file_type() == forerun_vfs::FileType::Directory;
                if let Some(chain) = chain.as_ref().filter(|_| !is_directory) {
                    files.set_all(chain);
                }
                if let Some(chain) = chain.filter(|_| is_directory)
                    && !entered.has(chain.first())
                {
                    entered.set(chain.first());
                    left.push(chain);
                }
            }
            slot = next;
        }
    }
    Ok(Reach {
        all: bits,
        files,
        twice,
    })
}

/// Returns a set whose move was interrupted, if it is still the live copy.
fn stranded(volume: &Volume, slots: &mut Slots<'_>, slot: u32) -> Result<Option<EntrySet>> {
    if !volume.recovers {
        return Ok(None);
    }
    Ok(match slots.next_item(slot)? {
        Some((Found::Stranded(set), _)) => Some(set),
        _ => None,
    })
}

/// Adds the clusters of an allocation that are on the volume, and returns them.
fn spread(
    volume: &Volume,
    data: Option<Allocation>,
    bits: &mut Bits,
    twice: &mut Bits,
) -> Result<Option<Chain>> {
    let Some(data) = data.filter(|data| volume.boot.has_cluster(data.first)) else {
        return Ok(None);
    };
    let chain = lenient(volume, data)?;
    for cluster in crate::bits::clusters(&chain) {
        if bits.has(cluster) {
            twice.set(cluster)
        } else {
            bits.set(cluster)
        }
    }
    Ok(Some(chain))
}

/// Returns the sound part of an allocation that begins on the volume.
pub fn lenient(volume: &Volume, data: Allocation) -> Result<Chain> {
    let boot = &volume.boot;
    let need = u32::try_from(boot.clusters_for(data.len));
    let need = need.map_or(boot.clusters, |need| need.clamp(1, boot.clusters));
    if data.contiguous {
        let end = boot.clusters + crate::ondisk::FIRST_CLUSTER;
        let count = need.min(end - data.first);
        return Ok(Chain::contiguous(data.first, count));
    }
    Ok(follow(volume, data.first, Some(need))?.chain)
}
