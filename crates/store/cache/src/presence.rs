//! Presence of chunks: the bitmap of this process, and the records that all processes share.
//!
//! A chunk whose bit is set in memory is served at once. Otherwise its record is read, which costs
//! one small read. A chunk with a record is read, hashed and compared. In this way a process finds
//! chunks that other processes have stored.

use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

use forerun_io::Unpoisoned;

use crate::blob::CachedBlob;
use crate::records::Record;
use crate::{CacheError, Result, runs};

impl CachedBlob {
    /// Returns whether the chunk is present.
    ///
    /// # Errors
    /// [`CacheError::Io`] if the cache cannot be read.
    pub fn is_present(&self, chunk: u64) -> Result<bool> {
        if self.present.get(chunk) {
            return Ok(true);
        }
        let chunks = chunk..chunk + 1;
        let looked = self.look_for(chunks);
        looked.map_err(CacheError::io("read", &self.files.dir))
    }

    /// Returns the runs of `chunks` that are missing.
    ///
    /// # Errors
    /// [`CacheError::Io`] if the cache cannot be read.
    pub fn missing(&self, chunks: Range<u64>) -> Result<Vec<Range<u64>>> {
        if self.is_complete() {
            return Ok(Vec::new());
        }
        let missing = self.present.runs(chunks.clone(), false);
        if missing.is_empty() {
            return Ok(missing);
        }
        for run in missing {
            self.look_for(run)
                .map_err(CacheError::io("read", &self.files.dir))?;
        }
        Ok(self.present.runs(chunks, false))
    }

    /// Returns the runs of `chunks` that this process knows to be present, without reading records.
    #[must_use]
    pub fn known_present(&self, chunks: Range<u64>) -> Vec<Range<u64>> {
        self.present.runs(chunks, true)
    }

    /// Looks for missing chunks that other processes have stored. Returns whether all of `chunks`
    /// are then present.
    pub(crate) fn look_for(&self, chunks: Range<u64>) -> io::Result<bool> {
        let mut stored = Vec::new();
        for run in self.present.runs(chunks.clone(), false) {
            let note = |chunk, record| stored.push((chunk, record));
            self.files.records.each(run, note)?;
        }
        let mut wrong = Vec::new();
        for (chunk, record) in stored {
            match self.is_as_recorded(chunk, record)? {
                Some(true) => self.found_unless_dropped(chunk, record)?,
                Some(false) => runs::push(&mut wrong, chunk..chunk + 1),
                None => {}
            }
        }
        self.distrust(&wrong)?;
        Ok(self.present.all(chunks))
    }

    /// Marks a chunk as found, unless it was dropped since its record was read. Dropping removes
    /// the record first, then the mark.
    fn found_unless_dropped(&self, chunk: u64, before: Record) -> io::Result<()> {
        self.found(chunk);
        let mut is_there = false;
        let note = |_, record| is_there = record == before;
        self.files.records.each(chunk..chunk + 1, note)?;
        if !is_there {
            self.forget(chunk);
        }
        Ok(())
    }

    /// Returns whether the data file holds the chunk's bytes; `None` if the table has no digest for
    /// it.
    fn is_as_recorded(&self, chunk: u64, record: Record) -> io::Result<Option<bool>> {
        let found = self.hashed_on_disk(chunk)?;
        let verdict = match self.compare_with_table(chunk, &found) {
            Some(Ok(())) => Some(true),
            Some(Err(CacheError::WrongDigest { .. })) => Some(false),
            // The table is unavailable: treat the chunk as missing.
            Some(Err(_)) => None,
            None => Some(found.record == record),
        };
        if verdict == Some(false) {
            tracing::debug!(
                chunk,
                "a stored chunk is torn or wrong and will be fetched again"
            );
        }
        Ok(verdict)
    }

    /// Clears the durable bits of wrong chunks. While they are written again, the state file must
    /// not call them durable: a power cut could leave them half written.
    fn distrust(&self, wrong: &[Range<u64>]) -> io::Result<()> {
        if wrong.is_empty() {
            return Ok(());
        }
        let _no_flush_meanwhile = self.flushing.lock().unpoisoned();
        wrong.iter().cloned().flatten().for_each(|chunk| {
            self.durable.clear(chunk);
        });
        Ok(self.files.state.change(&[], wrong)?)
    }

    /// Marks a chunk whose bytes in the data file are right, and wakes waiting threads.
    pub(crate) fn found(&self, chunk: u64) {
        self.mark(&(chunk..chunk + 1));
        self.wake();
    }

    /// Marks chunks whose bytes in the data file are right: they may be served, and will be made
    /// durable. Returns how many of them are new.
    pub(crate) fn mark(&self, chunks: &Range<u64>) -> u64 {
        let mut undurable = Vec::new();
        let mut new = 0;
        for chunk in chunks.clone() {
            self.note_checked(chunk);
            if self.present.set(chunk) {
                new += 1;
                if !self.durable.get(chunk) {
                    runs::push(&mut undurable, chunk..chunk + 1);
                }
            }
        }
        if !undurable.is_empty() {
            self.pending.lock().unpoisoned().extend(undurable);
        }
        self.missing.fetch_sub(new, Ordering::AcqRel);
        new
    }

    /// Marks a wrong chunk as missing.
    pub(crate) fn forget(&self, chunk: u64) {
        self.note_unchecked(chunk);
        self.missing.fetch_add(1, Ordering::AcqRel);
        if !self.present.clear(chunk) {
            self.missing.fetch_sub(1, Ordering::AcqRel);
        }
        self.durable.clear(chunk);
    }
}
