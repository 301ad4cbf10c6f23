//! Reads directories as sequences of entries.

use forerun_io::{u64_from, usize_from};
use forerun_vfs::{Error, NodeId, Result};

use crate::chain::Chain;
use crate::entry_set::{Allocation, EntrySet, primary_allocation, secondary_allocation};
use crate::error::Check;
use crate::fat::Fat;
use crate::moving;
use crate::ondisk::{ENTRY, ENTRY_LEN, kind};
use crate::place::Place;
use crate::volume::Volume;

/// Bytes of the first read of a directory. Most directories end there.
const FIRST_WINDOW: u64 = 16 << 10;
/// Bytes of each later read of a directory.
const WINDOW: u64 = 64 << 10;
/// Bytes that a check reads at once.
const WHOLE_WINDOW: u64 = 1 << 20;
/// Bytes that are compared with zero at once.
const ZERO_CHUNK: usize = 4096;

pub enum Found {
    Set(EntrySet),
    /// A sound set whose move to another sector a power cut interrupted. This is the live copy.
    Stranded(EntrySet),
    /// The start of a set whose move was interrupted after it had arrived.
    Departed,
    /// A critical primary entry of another kind.
    Other {
        entry: [u8; ENTRY],
    },
    /// A benign primary entry, with the allocations of its set.
    Benign {
        entry: [u8; ENTRY],
        allocations: Vec<Allocation>,
    },
    /// An unused entry.
    Free,
    /// A set that fails a check, or an entry that belongs to no set.
    Damaged(Check),
}

pub struct Slots<'a> {
    volume: &'a Volume,
    chain: &'a Chain,
    node: Option<NodeId>,
    count: u32,
    /// Maximum number of bytes per read.
    most: u64,
    start: u32,
    window: Vec<u8>,
}

impl<'a> Slots<'a> {
    /// Returns a reader of the directory with these clusters.
    pub fn new(volume: &'a Volume, chain: &'a Chain, node: Option<NodeId>) -> Self {
        Self {
            volume,
            chain,
            node,
            count: volume.slots(chain),
            most: FIRST_WINDOW,
            start: 0,
            window: Vec::new(),
        }
    }

    /// Returns a reader that continues beyond the end of the directory.
    pub fn whole(volume: &'a Volume, chain: &'a Chain, node: Option<NodeId>) -> Self {
        Self {
            most: WHOLE_WINDOW,
            ..Self::new(volume, chain, node)
        }
    }

    pub fn position(&self, slot: u32) -> Option<u64> {
        position(self.volume, self.chain, slot)
    }

    /// Reads one entry; returns `None` after the last.
    pub fn entry(&mut self, slot: u32) -> Result<Option<[u8; ENTRY]>> {
        if slot >= self.count {
            return Ok(None);
        }
        if let Some(entry) = self.buffered(slot) {
            return Ok(Some(entry));
        }
        self.load(slot)?;
        Ok(self.buffered(slot))
    }

    /// Reads entries, beginning with the sector of `slot`.
    fn load(&mut self, slot: u32) -> Result<()> {
        let start = slot - slot % self.volume.boot.slots_per_sector();
        let from = u64::from(start) * ENTRY_LEN;
        // Only one contiguous range: separate clusters cost one request each anyway.
        let pieces = self.volume.pieces(self.chain, from, self.most);
        let Some(&(offset, len)) = pieces.first() else {
            return Ok(());
        };
        // At most `most` bytes.
        let mut window = vec![0; usize_from(len)];
        self.volume.read(offset, &mut window)?;
        self.start = start;
        self.window = window;
        self.most = self.most.max(WINDOW);
        Ok(())
    }

    /// Returns slot and type of the first entry at or after `slot` that is not an end marker.
    pub fn first_behind(&mut self, slot: u32) -> Result<Option<(u32, u8)>> {
        let mut slot = slot;
        while slot < self.count {
            if self.buffered(slot).is_none() {
                self.load(slot)?;
            }
            let Some(rest) = self.buffered_from(slot) else {
                return Ok(None);
            };
            // The window may exceed the longest possible directory.
            let left = usize_from(u64::from(self.count - slot)) * ENTRY;
            let rest = &rest[..rest.len().min(left)];
            for chunk in rest.chunks(ZERO_CHUNK) {
                if chunk.iter().fold(0, |all, &byte| all | byte) != 0 {
                    let mut kinds = chunk.chunks_exact(ENTRY).map(|entry| entry[0]);
                    if let Some(index) = kinds.position(|kind| kind != kind::END) {
                        let found = chunk[index * ENTRY];
                        return Ok(Some((slot + u32::try_from(index).unwrap_or(0), found)));
                    }
                }
                slot += u32::try_from(chunk.len() / ENTRY).unwrap_or(1);
            }
        }
        Ok(None)
    }

    fn buffered(&self, slot: u32) -> Option<[u8; ENTRY]> {
        self.buffered_from(slot)?.first_chunk::<ENTRY>().copied()
    }

    /// Returns the buffered entries from `slot` on; `None` if the first is not buffered.
    fn buffered_from(&self, slot: u32) -> Option<&[u8]> {
        let index = usize::try_from(slot.checked_sub(self.start)?).ok()?;
        let entries = self.window.get(index.checked_mul(ENTRY)?..)?;
        (!entries.is_empty()).then_some(entries)
    }

    /// Returns the item that begins at `slot` and the slot of the next item, or `None` at the end
    /// of the directory.
    pub fn next_item(&mut self, slot: u32) -> Result<Option<(Found, u32)>> {
        let Some(entry) = self.entry(slot)? else {
            return Ok(None);
        };
        let found = entry[0];
        let next = slot + 1;
        Ok(Some(match found {
            kind::END => return Ok(None),
            kind::UNUSED if moving::may_be_stranded(self.volume, &entry) => {
                self.departed(slot, entry)?
            }
            found if found & kind::IN_USE == 0 => (Found::Free, next),
            kind::FILE => self.set(slot, entry)?,
            kind::IN_USE => (Found::Damaged(Check::EntryType { found }), next),
            found if found & kind::SECONDARY != 0 => (Found::Damaged(Check::Stray { found }), next),
            // Benign sets store the count of their entries; critical entries are single.
            found if found & kind::BENIGN != 0 => {
                let count = self.secondaries(slot, entry[1])?;
                let mut allocations: Vec<_> = primary_allocation(&entry).into_iter().collect();
                for slot in next..next + count {
                    let secondary = self.entry(slot)?;
                    allocations.extend(secondary.and_then(|entry| secondary_allocation(&entry)));
                }
                (Found::Benign { entry, allocations }, next + count)
            }
            _ => (Found::Other { entry }, next),
        }))
    }

    /// Counts the secondary entries in use after `slot`, up to `most`.
    fn secondaries(&mut self, slot: u32, most: u8) -> Result<u32> {
        let wanted = kind::IN_USE | kind::SECONDARY;
        for count in 0..u32::from(most) {
            let entry = self.entry(slot + 1 + count)?;
            if entry.is_none_or(|entry| entry[0] & wanted != wanted) {
                return Ok(count);
            }
        }
        Ok(most.into())
    }

    /// Determines whether a moving set has arrived at its new location.
    fn departed(&mut self, slot: u32, first: [u8; ENTRY]) -> Result<(Found, u32)> {
        let mut bytes = first.to_vec();
        for index in 1..=u32::from(first[1]) {
            bytes.extend(self.entry(slot + index)?.unwrap_or_default());
        }
        let Some(set) = moving::restored(bytes) else {
            return Ok((Found::Free, slot + 1));
        };
        let Some(place) = self.place(slot, set.entries()) else {
            return Ok((Found::Free, slot + 1));
        };
        let entries = u32::from(first[1]) + 1;
        Ok(if moving::has_arrived(self.volume, &first, place)? {
            (Found::Departed, slot + 1)
        } else {
            (Found::Stranded(set), slot + entries)
        })
    }

    fn set(&mut self, slot: u32, first: [u8; ENTRY]) -> Result<(Found, u32)> {
        let count = self.secondaries(slot, first[1])?;
        let mut bytes = first.to_vec();
        for index in 0..count {
            bytes.extend(self.entry(slot + 1 + index)?.unwrap_or_default());
        }
        let found = match parse_set(self.volume, bytes) {
            Ok(set) => Found::Set(set),
            Err(check) => Found::Damaged(check),
        };
        Ok((found, slot + 1 + count))
    }

    /// Returns the location of a set of `entries` entries that begins at `slot`.
    pub fn place(&self, slot: u32, entries: usize) -> Option<Place> {
        place(self.volume, self.chain, slot, entries)
    }

    /// Returns the error for a check that failed at an entry.
    pub fn error(&self, check: Check, slot: u32) -> Error {
        check.at(self.node, self.position(slot).unwrap_or(0))
    }
}

pub fn position(volume: &Volume, chain: &Chain, slot: u32) -> Option<u64> {
    let at = u64::from(slot) * ENTRY_LEN;
    let pieces = volume.pieces(chain, at, ENTRY_LEN);
    pieces.first().map(|&(offset, _)| offset)
}

/// Returns the location of a set of `entries` entries that begins at `slot`.
pub fn place(volume: &Volume, chain: &Chain, slot: u32, entries: usize) -> Option<Place> {
    let at = u64::from(slot) * ENTRY_LEN;
    let pieces = volume.pieces(chain, at, u64_from(entries) * ENTRY_LEN);
    pieces.first().map(|&(offset, _)| Place {
        offset,
        far: pieces.len() > 1,
    })
}

/// Returns offset and length of the contiguous ranges of a set of `entries` entries at `place`.
/// Fails with `StaleNode` if the location is in no cluster.
pub fn set_pieces(
    volume: &Volume,
    node: NodeId,
    place: Place,
    entries: usize,
) -> Result<Vec<(u64, u64)>> {
    let boot = &volume.boot;
    let mut pieces = Vec::with_capacity(2);
    let (mut offset, mut left) = (place.offset, u64_from(entries) * ENTRY_LEN);
    let mut fat = Fat::new(volume);
    while left > 0 {
        let Some(cluster) = boot.cluster_of(offset) else {
            return Err(Error::StaleNode(node));
        };
        let end = boot.cluster_at(cluster) + boot.cluster_size();
        let now = left.min(end - offset);
        pieces.push((offset, now));
        left -= now;
        if left > 0 {
            let next = if place.far {
                fat.next(cluster)?
            } else {
                cluster + 1
            };
            if !boot.has_cluster(next) {
                let count = u8::try_from(entries - 1).unwrap_or(u8::MAX);
                let found = usize_from(now / ENTRY_LEN) - 1;
                return Err(Check::SetCut { count, found }.at(Some(node), place.offset));
            }
            offset = boot.cluster_at(next);
        }
    }
    Ok(pieces)
}

/// Parses a set; in a rescue as Linux does, whatever its checksum.
fn parse_set(volume: &Volume, bytes: Vec<u8>) -> std::result::Result<EntrySet, Check> {
    if volume.rescue {
        EntrySet::parse_unproven(bytes)
    } else {
        EntrySet::parse(bytes)
    }
}

/// Reads the set at `place`. Fails with `StaleNode` if no set begins there.
pub fn read_set(volume: &Volume, node: NodeId, place: Place) -> Result<EntrySet> {
    let stale = || Error::StaleNode(node);
    if !place.offset.is_multiple_of(ENTRY_LEN) || volume.boot.cluster_of(place.offset).is_none() {
        return Err(stale());
    }
    let mut first = [0; ENTRY];
    volume.read(place.offset, &mut first)?;
    let is_stranded = first[0] == kind::UNUSED
        && moving::may_be_stranded(volume, &first)
        && !moving::has_arrived(volume, &first, place)?;
    // Rescue mode reads deleted files too.
    let is_deleted = first[0] == kind::UNUSED && volume.rescue;
    if first[0] != kind::FILE && !is_stranded && !is_deleted {
        return Err(stale());
    }
    let entries = usize::from(first[1]) + 1;
    let mut bytes = Vec::with_capacity(entries * ENTRY);
    for (offset, len) in set_pieces(volume, node, place, entries)? {
        let from = bytes.len();
        bytes.resize(from + usize_from(len), 0);
        volume.read(offset, &mut bytes[from..])?;
    }
    if is_stranded || is_deleted {
        return moving::restored(bytes).ok_or_else(stale);
    }
    parse_set(volume, bytes).map_err(|check| check.at(Some(node), place.offset))
}
