//! A device that saves old bytes before they are overwritten.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use super::format::{
    END_AT, End, Head, Header, MOST, MOST_PENDING, RECORDS_AT, SECTOR, Seal, sectors, sum,
};
use super::ranges::Ranges;
use crate::Unpoisoned;
use crate::{BlockDevice, ReadAt, past_end, u64_from, usize_from};

/// The destination of an undo file: a file, or a test double that records what was durable when.
pub trait UndoLog: Send {
    /// Writes all of `data` at `offset`, which is at most the file's length. The first write
    /// creates the file.
    ///
    /// # Errors
    /// The errors of the store.
    fn write_all_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Returns once all earlier writes are durable.
    ///
    /// # Errors
    /// The errors of the store.
    fn sync(&mut self) -> io::Result<()>;
}

/// A device that saves the old bytes of `inner` in an undo file before it changes them.
///
/// Writes stay in memory, and reads return them. [`flush`](BlockDevice::flush) writes them to
/// `inner`, and so does a write once 4 MiB are pending. If the undo file cannot be written, that
/// flush or write fails. No pending write has reached `inner` then, and the next flush tries again.
///
/// [`finish`](Self::finish) records in the undo file that the changes are complete. No write may
/// follow.
pub struct UndoDevice<D> {
    inner: D,
    state: Mutex<UndoState>,
}

struct UndoState {
    log: Box<dyn UndoLog>,
    /// Pending sectors, by offset.
    pending: BTreeMap<u64, Vec<u8>>,
    pending_bytes: u64,
    saved: Ranges,
    /// Set by the first batch.
    seal: Option<Seal>,
    position: u64,
    batch: u64,
    /// Set once the end slot is written.
    is_finished: bool,
}

impl<D: fmt::Debug> fmt::Debug for UndoDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UndoDevice")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<D: BlockDevice> UndoDevice<D> {
    /// Creates a device that saves old bytes in `log`, which must be empty.
    pub fn new(inner: D, log: Box<dyn UndoLog>) -> Self {
        let state = UndoState {
            log,
            pending: BTreeMap::new(),
            pending_bytes: 0,
            saved: Ranges::default(),
            seal: None,
            position: RECORDS_AT,
            batch: 0,
            is_finished: false,
        };
        Self {
            inner,
            state: Mutex::new(state),
        }
    }

    /// Returns the device below. Pending writes have not reached it yet.
    pub const fn inner(&self) -> &D {
        &self.inner
    }

    /// Flushes. If there was any change, records in the undo file that the changes are complete.
    ///
    /// # Errors
    /// The errors of a flush. The undo file is still usable, as that of an interrupted change.
    pub fn finish(&self) -> io::Result<()> {
        self.flush()?;
        let mut state = self.state();
        let Some(seal) = state.seal.filter(|_| !state.is_finished) else {
            return Ok(());
        };
        let end = End::encode(state.position, &seal);
        state.log.write_all_at(END_AT, &end)?;
        state.log.sync()?;
        state.is_finished = true;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, UndoState> {
        self.state.lock().unpoisoned()
    }

    /// Keeps a part of a sector until it is written.
    fn keep(
        &self,
        state: &mut UndoState,
        sector: Range<u64>,
        at: u64,
        data: &[u8],
    ) -> io::Result<()> {
        let at = usize_from(at - sector.start);
        let place = at..at + data.len();
        if let Some(bytes) = state.pending.get_mut(&sector.start) {
            return overwrite(bytes, place, data);
        }
        let len = sector.end - sector.start;
        let mut bytes = vec![0; usize_from(len)];
        if u64_from(data.len()) < len {
            self.inner.read_exact_at(sector.start, &mut bytes)?;
        }
        overwrite(&mut bytes, place, data)?;
        state.pending.insert(sector.start, bytes);
        state.pending_bytes += len;
        Ok(())
    }

    /// Saves the old bytes of the pending sectors, then writes the sectors.
    fn drain(&self, state: &mut UndoState) -> io::Result<()> {
        if state.pending.is_empty() {
            return Ok(());
        }
        if state.is_finished {
            return Err(io::Error::other("written after the end of its undo file"));
        }
        let runs = runs(&state.pending);
        let (header, seal) = match state.seal {
            Some(seal) => (None, seal),
            None => {
                let (header, seal) = self.header()?;
                (Some(header), seal)
            }
        };
        let (bytes, saved) = self.records(state, &runs, &seal)?;
        if let Some(header) = header {
            // The end slot stays zero until the changes are complete.
            let head = [header, [0; 512]].concat();
            state.log.write_all_at(0, &head)?;
        }
        let position = state.position;
        state.log.write_all_at(position, &bytes)?;
        state.log.sync()?;
        state.seal = Some(seal);
        state.position += u64_from(bytes.len());
        state.batch += 1;
        for range in saved {
            state.saved.insert(range);
        }
        for (offset, bytes) in &runs {
            self.inner.write_all_at(*offset, bytes)?;
        }
        state.pending.clear();
        state.pending_bytes = 0;
        Ok(())
    }

    fn header(&self) -> io::Result<([u8; 512], Seal)> {
        let mut first = vec![0; usize_from(self.inner.len().min(SECTOR))];
        self.inner.read_exact_at(0, &mut first)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let header = Header {
            volume_len: self.inner.len(),
            first: sum(&first),
            salt: now.map_or(0, |now| {
                u64::from(now.subsec_nanos()) ^ (now.as_secs() << 30)
            }),
        };
        Ok(header.encode())
    }

    /// Returns the records of a batch, and the ranges whose old bytes they hold.
    fn records(
        &self,
        state: &UndoState,
        runs: &[(u64, Vec<u8>)],
        seal: &Seal,
    ) -> io::Result<(Vec<u8>, Vec<Range<u64>>)> {
        let (mut bytes, mut saved) = (Vec::new(), Vec::new());
        let runs_end = runs.last().map(|(start, new)| start + u64_from(new.len()));
        for (start, new) in runs {
            let range = *start..*start + u64_from(new.len());
            for (range, saves) in state.parts(range) {
                let head = Head {
                    batch: state.batch,
                    range: range.clone(),
                    saved: saves,
                    last: Some(range.end) == runs_end,
                };
                let position = state.position + u64_from(bytes.len());
                let (head_bytes, seal) = head.encode(position, seal);
                let mut body = Vec::new();
                if saves {
                    body.resize(usize_from(head.len()), 0);
                    self.inner.read_exact_at(range.start, &mut body)?;
                    saved.push(range.clone());
                }
                for sector in sectors(range) {
                    let at = usize_from(sector.start - start);
                    let end = usize_from(sector.end - start);
                    body.extend_from_slice(&sum(&new[at..end]).to_le_bytes());
                }
                bytes.extend_from_slice(&head_bytes);
                bytes.extend_from_slice(&body);
                bytes.extend_from_slice(&seal.check(&body));
            }
        }
        Ok((bytes, saved))
    }
}

impl UndoState {
    /// Splits a range into parts, each with a flag whether its old bytes must still be saved.
    fn parts(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, bool)> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let rest = at..range.end.min(at + MOST);
            if rest.is_empty() {
                return None;
            }
            let (end, saves) = match self.saved.first_in(rest.clone()) {
                Some(known) if known == at => (self.saved.first_gap(rest.clone()), false),
                Some(known) => (Some(known), true),
                None => (None, true),
            };
            let part = at..end.unwrap_or(rest.end);
            at = part.end;
            Some((part, saves))
        })
    }
}

/// Overwrites the bytes at `place`, which lies inside the sector.
fn overwrite(sector: &mut [u8], place: Range<usize>, data: &[u8]) -> io::Result<()> {
    let part = sector.get_mut(place);
    part.ok_or(io::ErrorKind::UnexpectedEof)?
        .copy_from_slice(data);
    Ok(())
}

/// Joins consecutive sectors into runs of bytes.
fn runs(pending: &BTreeMap<u64, Vec<u8>>) -> Vec<(u64, Vec<u8>)> {
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    for (&offset, bytes) in pending {
        match runs.last_mut() {
            Some((start, run)) if *start + u64_from(run.len()) == offset => {
                run.extend_from_slice(bytes)
            }
            _ => runs.push((offset, bytes.clone())),
        }
    }
    runs
}

impl<D: BlockDevice> ReadAt for UndoDevice<D> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        past_end(offset, out.len(), self.len())?;
        // The lock is held during the read, so that no sector is written to the device meanwhile.
        let state = self.state();
        self.inner.read_exact_at(offset, out)?;
        let end = offset + u64_from(out.len());
        for (&start, bytes) in state.pending.range(offset / SECTOR * SECTOR..end) {
            let from = usize_from(offset.saturating_sub(start));
            let to = usize_from(start.saturating_sub(offset));
            for (to, byte) in out.iter_mut().skip(to).zip(&bytes[from..]) {
                *to = *byte;
            }
        }
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for UndoDevice<D> {
    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        past_end(offset, data.len(), self.len())?;
        let mut state = self.state();
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let start = at / SECTOR * SECTOR;
            let sector = start..self.len().min(start + SECTOR);
            let room = usize_from(sector.end - at).min(rest.len());
            let (now, behind) = rest.split_at(room);
            if state.pending_bytes + SECTOR > MOST_PENDING {
                self.drain(&mut state)?;
            }
            self.keep(&mut state, sector, at, now)?;
            at += u64_from(room);
            rest = behind;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state();
        self.drain(&mut state)?;
        self.inner.flush()
    }
}
