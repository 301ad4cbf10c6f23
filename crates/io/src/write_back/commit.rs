use std::fmt;
use std::io;

use super::clean::MAX_REQUEST;
use super::{Group, WriteBack};
use crate::Unpoisoned;
use crate::{Structure, u64_from};

#[derive(Debug)]
pub struct CommitError {
    pub offset: u64,
    /// Length of the write; 0 for a flush.
    pub len: usize,
    pub source: io::Error,
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.len {
            0 => f.write_str("flushing the device"),
            len => write!(f, "writing {len} bytes at {:#x}", self.offset),
        }
    }
}

impl std::error::Error for CommitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl From<CommitError> for io::Error {
    fn from(error: CommitError) -> Self {
        error.source
    }
}

/// The steps of a commit. All sectors of one group are durable before the next group is written.
#[derive(Clone, Copy, Debug)]
pub struct CommitOrder<'a> {
    /// Groups that do not refer to data written directly to the device. The data need not be
    /// durable before them, and their flushes also flush the data.
    pub before_data: &'a [Group],
    /// Groups that may refer to data written directly to the device.
    pub after_data: &'a [Group],
    /// A group that may become durable at any time. It is written together with the first other
    /// group that has dirty sectors, without a flush of its own. If there is no such group, it
    /// stays dirty.
    pub along: Option<Group>,
}

/// A copy of a dirty sector, made for the commit.
struct TakenSector {
    index: u64,
    clock: u64,
    bytes: Box<[u8]>,
}

impl WriteBack {
    /// Writes the dirty sectors of each group in `order`, adjacent ones in one request, and flushes
    /// after each group that had any. Data written directly to the device ([`note_data_written`])
    /// is flushed first. Without dirty sectors or such data, nothing is written or flushed. Groups
    /// that are not named stay dirty.
    ///
    /// Changes may continue during the commit; changes of sectors in flight are left for the next
    /// commit.
    ///
    /// [`note_data_written`]: Self::note_data_written
    ///
    /// # Errors
    /// The first write or flush that failed. The sectors of its group and of later groups stay
    /// dirty; which of them reached the device is unknown.
    pub fn commit(&self, order: &[Group]) -> Result<(), CommitError> {
        self.commit_ordered(&CommitOrder {
            before_data: &[],
            after_data: order,
            along: None,
        })
    }

    /// Commits `order.before_data`, makes data written directly to the device durable, and commits
    /// `order.after_data`. `order.along` is written with the first group that has dirty sectors.
    ///
    /// # Errors
    /// The errors of [`commit`](Self::commit).
    pub fn commit_ordered(&self, order: &CommitOrder<'_>) -> Result<(), CommitError> {
        let _one_at_a_time = self.committing.lock().unpoisoned();
        let mut along = order.along;
        let has_data = self.take_data_written();
        let groups = self.commit_groups(order.before_data, &mut along);
        let flushed = groups.and_then(|flushed| {
            if has_data && !flushed {
                self.flush()
            } else {
                Ok(())
            }
        });
        flushed.inspect_err(|_| {
            if has_data {
                self.note_data_written();
            }
        })?;
        self.commit_groups(order.after_data, &mut along)?;
        Ok(())
    }

    /// Commits the groups in order. Returns whether the device was flushed.
    fn commit_groups(
        &self,
        order: &[Group],
        along: &mut Option<Group>,
    ) -> Result<bool, CommitError> {
        let mut flushed = false;
        for &group in order {
            if !self.has(group) {
                continue;
            }
            if let Some(along) = along.take() {
                self.join(along, group);
            }
            let taken = self.take(group);
            self.write_out(&taken)?;
            self.flush()?;
            self.settle(group, &taken);
            flushed = true;
        }
        Ok(flushed)
    }

    fn take_data_written(&self) -> bool {
        let mut state = self.state.write().unpoisoned();
        std::mem::take(&mut state.data_written)
    }

    fn has(&self, group: Group) -> bool {
        let state = self.state.read().unpoisoned();
        state.sectors.values().any(|sector| sector.is_of(group))
    }

    fn join(&self, from: Group, into: Group) {
        let mut state = self.state.write().unpoisoned();
        for sector in state.sectors.values_mut() {
            sector.join(from, into);
        }
    }

    fn flush(&self) -> Result<(), CommitError> {
        let flushed = self.clean.device().flush();
        flushed.map_err(|source| CommitError {
            offset: 0,
            len: 0,
            source,
        })
    }

    /// Copies the sectors of `group`, in ascending order.
    fn take(&self, group: Group) -> Vec<TakenSector> {
        let state = self.state.read().unpoisoned();
        let of_group = state.sectors.iter().filter(|(_, s)| s.is_of(group));
        let taken = of_group.map(|(&index, sector)| TakenSector {
            index,
            clock: sector.clock(),
            bytes: sector.composed(group),
        });
        taken.collect()
    }

    fn write_out(&self, taken: &[TakenSector]) -> Result<(), CommitError> {
        let mut rest = taken;
        let mut request = Vec::new();
        while let Some(first) = rest.first() {
            let offset = first.index * self.sector;
            let structure = self.clean.structure(offset);
            let (run, behind) = rest.split_at(self.run_len(rest, structure));
            request.clear();
            for sector in run {
                request.extend_from_slice(&sector.bytes);
            }
            let written = self.clean.device().write(offset, &request, structure);
            written.map_err(|source| CommitError {
                offset,
                len: request.len(),
                source,
            })?;
            rest = behind;
        }
        Ok(())
    }

    /// Counts the first sectors that are adjacent, of one structure, and fit into one request.
    fn run_len(&self, taken: &[TakenSector], structure: Structure) -> usize {
        let most = MAX_REQUEST / self.sector;
        let Some(first) = taken.first() else { return 0 };
        let run = taken.iter().enumerate().take_while(|(n, sector)| {
            let n = u64_from(*n);
            let offset = sector.index * self.sector;
            sector.index == first.index + n
                && n < most.max(1)
                && self.clean.structure(offset) == structure
        });
        run.count()
    }

    /// Marks the durable group clean, except sectors that have changed since they were copied.
    fn settle(&self, group: Group, taken: &[TakenSector]) {
        let mut state = self.state.write().unpoisoned();
        for TakenSector {
            index,
            clock,
            bytes,
        } in taken
        {
            self.clean.update(index * self.sector, bytes);
            if let Some(sector) = state.sectors.get_mut(index)
                && sector.committed(group, bytes, *clock)
            {
                state.sectors.remove(index);
            }
        }
    }
}
