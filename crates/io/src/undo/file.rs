//! Reads an undo file, and restores its bytes. The file is treated as hostile.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::UndoError;
use super::format::{
    CHECK, END_AT, End, Found, HEAD, Head, Header, MOST_BATCH, Parsed, RECORD, RECORDS_AT, SECTOR,
    SUM, Seal, sectors, sum, word,
};
use super::ranges::Ranges;
use crate::{CountedDevice, Purpose, ReadAt, Structure, u64_from, usize_from};

/// An undo file. Its records are read from the file each time they are needed.
pub struct UndoFile {
    source: Arc<dyn ReadAt>,
    header: Header,
    seal: Seal,
    end: End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Number of bytes that the undo file holds.
    pub saved: u64,
    /// Number of written bytes: for each record, from the first to the last sector that differed.
    pub written: u64,
    /// Whether the changes were complete according to the undo file; otherwise they were
    /// interrupted.
    pub complete: bool,
}

/// A visitor of the position in the file, the head and the body of each record.
type Visit<'v> = dyn FnMut(u64, &Head, &[u8]) -> Result<(), UndoError> + 'v;

/// The result of comparing a volume with an undo file.
struct Survey {
    saved: Ranges,
    /// Sectors whose contents match a state before, between or after the changes.
    known: Ranges,
}

impl fmt::Debug for UndoFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UndoFile")
            .field("header", &self.header)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl UndoFile {
    /// Opens an undo file, and reads its header.
    ///
    /// # Errors
    /// [`UndoError::NotUndo`], [`UndoError::Version`], [`UndoError::Damaged`] and
    /// [`UndoError::Read`].
    pub fn open(source: Arc<dyn ReadAt>) -> Result<Self, UndoError> {
        if source.len() < RECORDS_AT {
            return Err(UndoError::NotUndo);
        }
        let (mut header, mut end) = ([0; 512], [0; 512]);
        for (at, block) in [(0, &mut header), (END_AT, &mut end)] {
            source.read_exact_at(at, block).map_err(UndoError::Read)?;
        }
        let (header, seal) = match Header::parse(&header) {
            Parsed::Header(header, seal) => (header, seal),
            Parsed::NotUndo => return Err(UndoError::NotUndo),
            Parsed::Version(version) => return Err(UndoError::Version(version)),
            Parsed::Damaged => return Err(damaged(0, "the header's checksum is wrong")),
        };
        let end = End::parse(&end, &seal);
        match end {
            End::At(len) if len != source.len() => Err(damaged(
                source.len(),
                "the file has another length than it says",
            )),
            _ => Ok(Self {
                source,
                header,
                seal,
                end,
            }),
        }
    }

    /// Writes all bytes of the file back to the device, and flushes it.
    ///
    /// Before the first write, the whole file is checked, and so is each sector of the volume that
    /// it names. `force` skips the check of the sectors. If a call was interrupted, another call
    /// completes it.
    ///
    /// # Errors
    /// [`UndoError`]; the volume was not written, except after [`UndoError::Write`].
    pub fn restore(&self, device: &CountedDevice, force: bool) -> Result<Restored, UndoError> {
        if device.len() != self.header.volume_len {
            return Err(UndoError::Length {
                expected: self.header.volume_len,
                found: device.len(),
            });
        }
        let survey = self.survey(device)?;
        if !force {
            self.compare(device, &survey)?;
        }
        let mut restored = Restored {
            complete: self.end != End::Open,
            ..Restored::default()
        };
        self.records(&mut |position, head, body| {
            if !head.saved {
                return Ok(());
            }
            // The file may have changed since it was checked.
            if survey.saved.first_gap(head.range.clone()).is_some() {
                return Err(damaged(position, "a record that was not there before"));
            }
            restored.saved += head.len();
            restored.written += put_back(device, head, body)?;
            Ok(())
        })?;
        let flushed = device.flush();
        flushed.map_err(|source| UndoError::Write {
            offset: None,
            source,
        })?;
        Ok(restored)
    }

    /// Checks all records, and compares the sectors of the volume with them.
    fn survey(&self, device: &CountedDevice) -> Result<Survey, UndoError> {
        let mut survey = Survey {
            saved: Ranges::default(),
            known: Ranges::default(),
        };
        self.records(&mut |position, head, body| {
            let range = head.range.clone();
            if head.saved && survey.saved.first_in(range.clone()).is_some() {
                return Err(damaged(position, "bytes that another record has"));
            }
            if !head.saved && survey.saved.first_gap(range.clone()).is_some() {
                return Err(damaged(position, "bytes whose old ones no record has"));
            }
            if head.saved {
                survey.saved.insert(range.clone());
            }
            let now = read(device, &range)?;
            let (old, sums) = parts(head, body);
            for (number, sector) in sectors(range.clone()).enumerate() {
                let at = usize_from(sector.start - range.start);
                let len = usize_from(sector.end - sector.start);
                let bytes = &now[at..at + len];
                let is_old = old.get(at..at + len) == Some(bytes);
                if is_old || word(sums, number * usize_from(SUM)) == sum(bytes) {
                    survey.known.insert(sector);
                }
            }
            Ok(())
        })?;
        Ok(survey)
    }

    /// Refuses a volume whose sectors match no state before, between or after the changes.
    fn compare(&self, device: &CountedDevice, survey: &Survey) -> Result<(), UndoError> {
        let first = 0..self.header.volume_len.min(SECTOR);
        let is_known = survey.known.first_gap(first.clone()).is_none();
        if !is_known && sum(&read(device, &first)?) != self.header.first {
            return Err(UndoError::OtherVolume);
        }
        let gaps = survey.saved.iter();
        let mut gaps = gaps.filter_map(|range| survey.known.first_gap(range));
        match gaps.next() {
            Some(offset) => Err(UndoError::Changed { offset }),
            None => Ok(()),
        }
    }

    /// Calls `visit` with the position, the head and the body of each record.
    fn records(&self, visit: &mut Visit<'_>) -> Result<(), UndoError> {
        let mut position = RECORDS_AT;
        // If a batch is torn, the volume was not written by it or by a later batch.
        let mut batch = 0;
        while position < self.source.len() {
            match self.record(position)? {
                ControlFlow::Continue((head, body)) => {
                    if head.batch != batch {
                        return Err(damaged(position, "a record of another batch"));
                    }
                    batch += u64::from(head.last);
                    visit(position, &head, &body)?;
                    position += HEAD + u64_from(body.len()) + CHECK;
                }
                ControlFlow::Break(()) => return self.torn(position, batch),
            }
        }
        Ok(())
    }

    /// Reads a record. Breaks if the file ends inside it, or it is torn.
    fn record(&self, position: u64) -> Result<ControlFlow<(), (Head, Vec<u8>)>, UndoError> {
        let torn = Ok(ControlFlow::Break(()));
        let Some(body_at) = position.checked_add(HEAD) else {
            return torn;
        };
        let mut head = [0; 48];
        let Some(room) = self.source.len().checked_sub(body_at) else {
            return torn;
        };
        self.read(position, &mut head)?;
        let (head, seal) = match Head::parse(&head, position, &self.seal, self.header.volume_len) {
            Found::Head(head, seal) => (head, seal),
            Found::Nothing => return torn,
            Found::Damaged(what) => return Err(damaged(position, what)),
        };
        // Bounded by `MOST`, and by the file.
        if head.body_len() + CHECK > room {
            return torn;
        }
        let mut body = vec![0; usize_from(head.body_len() + CHECK)];
        self.read(body_at, &mut body)?;
        let check = body.split_off(usize_from(head.body_len()));
        if check == seal.check(&body) {
            Ok(ControlFlow::Continue((head, body)))
        } else {
            torn
        }
    }

    /// Accepts a torn end, as a power cut leaves it: the end slot is empty, and no batch follows.
    fn torn(&self, position: u64, batch: u64) -> Result<(), UndoError> {
        let damage = || damaged(position, "a record's checksum is wrong");
        let len = self.source.len() - position;
        if self.end != End::Open || len > MOST_BATCH {
            return Err(damage());
        }
        let mut rest = vec![0; usize_from(len)];
        self.read(position, &mut rest)?;
        let heads = rest.windows(usize_from(HEAD)).enumerate();
        for (at, bytes) in heads.filter(|(_, bytes)| bytes.starts_with(RECORD)) {
            let at = position + u64_from(at);
            let Some(bytes) = bytes.first_chunk() else {
                continue;
            };
            match Head::parse(bytes, at, &self.seal, self.header.volume_len) {
                Found::Head(head, _) if head.batch > batch => return Err(damage()),
                Found::Damaged(_) => return Err(damage()),
                Found::Head(..) | Found::Nothing => {}
            }
        }
        Ok(())
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), UndoError> {
        self.source.read_exact_at(at, out).map_err(UndoError::Read)
    }
}

/// Splits a body into the old bytes, if the record has them, and the sums of the new bytes.
fn parts<'a>(head: &Head, body: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let old = if head.saved { head.len() } else { 0 };
    body.split_at(usize_from(old))
}

/// Writes the old bytes unless the volume has them already. Returns the number of bytes written.
fn put_back(device: &CountedDevice, head: &Head, body: &[u8]) -> Result<u64, UndoError> {
    let (old, _) = parts(head, body);
    let (start, now) = (head.range.start, read(device, &head.range)?);
    let size = usize_from(SECTOR);
    let pairs = old.chunks(size).zip(now.chunks(size)).enumerate();
    let mut differing = pairs.filter(|(_, (old, now))| old != now).map(|(n, _)| n);
    let (Some(first), last) = (differing.next(), differing.next_back()) else {
        return Ok(0);
    };
    // One request: rewriting unchanged sectors in between costs nothing.
    let end = (last.unwrap_or(first) + 1) * size;
    let bytes = &old[first * size..end.min(old.len())];
    let offset = start + u64_from(first * size);
    let done = device.write(offset, bytes, Structure::Metadata);
    done.map_err(|source| UndoError::Write {
        offset: Some(offset),
        source,
    })?;
    Ok(u64_from(bytes.len()))
}

fn read(device: &CountedDevice, range: &Range<u64>) -> Result<Vec<u8>, UndoError> {
    // At most `MOST` bytes, because the record was checked.
    let mut bytes = vec![0; usize_from(range.end - range.start)];
    let done = device.read(
        range.start,
        &mut bytes,
        Purpose::Metadata,
        Structure::Metadata,
    );
    done.map_err(|source| UndoError::Volume {
        offset: range.start,
        source,
    })?;
    Ok(bytes)
}

const fn damaged(at: u64, what: &'static str) -> UndoError {
    UndoError::Damaged { at, what }
}
