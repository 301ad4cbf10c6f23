//! Changed metadata that is not yet on the device.
//!
//! A change dirties sectors in memory and costs no I/O. [`WriteBack::commit`] writes each dirty
//! sector once, adjacent ones in one request, with a flush between groups whose order matters. The
//! caller decides how many changes go into one commit: a single operation if each must be durable
//! when it returns, otherwise many.
//!
//! **Sectors of several groups.** Each byte belongs to the groups that changed it. When a group is
//! committed, the sector is written with the changes of this group and of groups committed before,
//! and other bytes are written as they are on the device. If two groups changed the same byte, the
//! later change wins once both are committed; if the later one is committed first, the older one is
//! dropped. So the order of groups holds inside sectors too, for bytes but not for bits. A caller
//! that sets one bit of a byte in one group and clears another bit of it in a later group must
//! delay the second change until the first group is committed, or accept that the first group
//! writes the first value of the byte.
//!
//! File contents do not pass through here.

mod clean;
mod commit;
mod sector;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, RwLock};

use crate::Unpoisoned;
use crate::{
    BlockDevice, CountedDevice, Observer, ReadAt, Structure, past_end, u64_from, usize_from,
};
use clean::{Clean, give};
pub use commit::{CommitError, CommitOrder};
use sector::Sector;

/// Identifies sectors that are written together: a step of the order in which changes become
/// durable. [`commit`](WriteBack::commit) sets the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(pub u8);

/// A device with uncommitted changes of its metadata, which reads return.
pub struct WriteBack {
    clean: Clean,
    sector: u64,
    /// Readers hold this lock while they read the device too. A writer that holds it knows that no
    /// read into the cache is in flight.
    state: RwLock<WriteBackState>,
    /// Held during a commit.
    committing: Mutex<()>,
}

#[derive(Default)]
struct WriteBackState {
    sectors: BTreeMap<u64, Sector>,
    /// Set when data was written directly to the device and not flushed since.
    data_written: bool,
}

/// A part of a change that lies in one sector.
struct Piece<'a> {
    index: u64,
    at: usize,
    data: &'a [u8],
    /// The sector as it is on the device, if needed.
    device: Option<Box<[u8]>>,
}

impl Piece<'_> {
    fn is_on_device(&self) -> bool {
        let device = self.device.as_deref().and_then(|d| d.get(self.at..));
        device.is_some_and(|bytes| bytes.starts_with(self.data))
    }
}

impl fmt::Debug for WriteBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBack")
            .field("clean", &self.clean)
            .field("sector", &self.sector)
            .field("dirty_bytes", &self.dirty_bytes())
            .finish_non_exhaustive()
    }
}

impl WriteBack {
    /// Creates a clean instance. `budget` bounds the bytes of cached clean blocks; dirty ones are
    /// bounded by how often the caller commits.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>, observer: Arc<Observer>, budget: u64) -> Self {
        let sector = u64::from(device.sector_size().max(1));
        Self {
            clean: Clean::new(CountedDevice::new(device, observer), budget),
            sector,
            state: RwLock::default(),
            committing: Mutex::default(),
        }
    }

    /// Sets the structures of regions of the device, for the trace. The rest counts as
    /// [`Structure::Metadata`].
    pub fn name_regions(&self, regions: Vec<(Range<u64>, Structure)>) {
        self.clean.name(regions);
    }

    /// Changes bytes. Does no I/O, except to read a sector that is covered in part, or that another
    /// group has dirtied.
    ///
    /// # Errors
    /// The errors of [`ReadAt::read_exact_at`]; nothing is changed then.
    pub fn write(&self, group: Group, offset: u64, data: &[u8]) -> io::Result<()> {
        past_end(offset, data.len(), self.len())?;
        let mut state = self.state.write().unpoisoned();
        let mut pieces = self.pieces(offset, data);
        for piece in &mut pieces {
            let needed = match state.sectors.get(&piece.index) {
                Some(sector) => !sector.is_only_of(group) && !sector.is_shared(),
                None => u64_from(piece.data.len()) < self.sector_len(piece.index),
            };
            if needed {
                piece.device = Some(self.on_device(piece.index)?);
            }
        }
        for piece in pieces {
            match state.sectors.get_mut(&piece.index) {
                Some(sector) => sector.change(group, piece.at, piece.data, piece.device),
                // The device already has these bytes.
                None if piece.is_on_device() => {}
                None => {
                    let content = piece.device.unwrap_or_else(|| piece.data.into());
                    let mut sector = Sector::new(group, content);
                    sector.change(group, piece.at, piece.data, None);
                    state.sectors.insert(piece.index, sector);
                }
            }
        }
        Ok(())
    }

    /// Records that file data was written directly to the device. The next commit flushes it before
    /// its first group, even if no sector is dirty.
    pub fn note_data_written(&self) {
        let mut state = self.state.write().unpoisoned();
        state.data_written = true;
    }

    /// Returns whether a commit of all groups would write or flush anything.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        let state = self.state.read().unpoisoned();
        state.data_written || !state.sectors.is_empty()
    }

    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        let state = self.state.read().unpoisoned();
        u64_from(state.sectors.len()) * self.sector
    }

    #[must_use]
    pub fn sector_size(&self) -> u32 {
        self.device().sector_size()
    }

    /// Returns the device below. Dirty sectors have not reached it yet.
    #[must_use]
    pub const fn device(&self) -> &Arc<dyn BlockDevice> {
        self.clean.device().inner()
    }

    #[must_use]
    pub const fn counted(&self) -> &CountedDevice {
        self.clean.device()
    }

    fn pieces<'a>(&self, offset: u64, mut data: &'a [u8]) -> Vec<Piece<'a>> {
        let mut pieces = Vec::with_capacity(data.len() / usize_from(self.sector) + 2);
        let mut offset = offset;
        while !data.is_empty() {
            let (index, at) = (offset / self.sector, offset % self.sector);
            let room = usize_from(self.sector - at).min(data.len());
            let (now, rest) = data.split_at(room);
            pieces.push(Piece {
                index,
                at: usize_from(at),
                data: now,
                device: None,
            });
            offset += u64_from(room);
            data = rest;
        }
        pieces
    }

    /// Returns the length of a sector, which the end of the device may cut short.
    fn sector_len(&self, index: u64) -> u64 {
        let start = index * self.sector;
        self.sector.min(self.len() - start)
    }

    fn on_device(&self, index: u64) -> io::Result<Box<[u8]>> {
        let mut bytes = vec![0; usize_from(self.sector_len(index))];
        self.clean.read(index * self.sector, &mut bytes)?;
        Ok(bytes.into())
    }
}

impl ReadAt for WriteBack {
    fn len(&self) -> u64 {
        self.clean.device().len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        past_end(offset, out.len(), self.len())?;
        let state = self.state.read().unpoisoned();
        let end = offset + u64_from(out.len());
        let touched = offset / self.sector..end.div_ceil(self.sector);
        if let Some(sector) = state.sectors.get(&touched.start)
            && touched.end - touched.start == 1
        {
            give(sector.current(), touched.start * self.sector, offset, out);
            return Ok(());
        }
        self.clean.read(offset, out)?;
        for (index, sector) in state.sectors.range(touched) {
            give(sector.current(), index * self.sector, offset, out);
        }
        Ok(())
    }
}
