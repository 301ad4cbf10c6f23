//! Verifies chunks of earlier processes when this process first reads them.
//!
//! The state file says which chunks were verified and synced. The file may have changed since: a disk may
//! return other bytes, and another program may have written to it. So a chunk is hashed at its first use in
//! each process, and its bytes are served from the buffer that was hashed. A chunk that differs is counted
//! and dropped; it is missing then.
//!
//! Later reads of the same chunk are not hashed: they come from the page cache, or cost one `pread`.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use forerun_io::{Unpoisoned, u64_from, usize_from};
use rustix::io::Errno;

use crate::blob::{CachedBlob, ReadData};
use crate::records::Record;
use crate::{CacheError, Result, cores};

impl CachedBlob {
    /// Returns whether this process has verified every chunk, or was told to trust them, so that no read
    /// drops one.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.unchecked.load(Ordering::Acquire) == 0
    }

    /// Counts the chunks that were found altered and dropped since the blob was opened.
    #[must_use]
    pub fn altered_chunks(&self) -> u64 {
        self.altered.load(Ordering::Relaxed)
    }

    /// Verifies the chunks that are present and not verified yet, on all cores. Drops altered ones.
    ///
    /// # Errors
    /// [`CacheError::Io`] if the cache cannot be read; [`CacheError::Table`] if the table has no digest for a
    /// chunk.
    pub fn check_rest(&self) -> Result<()> {
        let runs = self.present.runs(0..self.present.len(), true);
        let chunks = runs.into_iter().flatten();
        let rest: Vec<u64> = chunks.filter(|chunk| !self.checked.get(*chunk)).collect();
        let work = |index: usize| {
            match rest.get(index) {
                // A reader may have verified it meanwhile.
                Some(chunk) if !self.checked.get(*chunk) => {
                    self.read_checked(*chunk, 0, &mut []).map(|_right| ())
                }
                _ => Ok(()),
            }
        };
        let each = u64::from(self.geometry().chunk_size());
        let done = cores::for_each(rest.len(), each, work);
        done.map_err(CacheError::io("read", &self.files.dir))
    }

    /// Fills `out` from `offset` on; all of its chunks must be present. Verifies chunks that were not
    /// verified before, and returns false if one was altered.
    pub(crate) fn read_checking(
        &self,
        reader: &dyn ReadData,
        offset: u64,
        out: &mut [u8],
    ) -> io::Result<bool> {
        let geometry = self.geometry();
        let end = offset + u64_from(out.len());
        let chunks = geometry.chunks_of(&(offset..end));
        // Before the read: a chunk that is verified during it may have been altered when it was read.
        let unchecked = if self.is_checked() {
            Vec::new()
        } else {
            self.checked.runs(chunks, false)
        };
        // In one request, since the kernel's readahead follows the length of requests.
        match reader.read(offset, out) {
            // The loop below finds out which chunk it was.
            Err(error) if is_lost(&error) && !unchecked.is_empty() => {}
            read => read?,
        }
        let recorded = match (unchecked.first(), unchecked.last()) {
            // A shorter read has no whole chunk. The code below reads a whole one, and its record.
            (Some(first), Some(last)) if u64_from(out.len()) >= geometry.size() => {
                self.recorded(first.start..last.end)?
            }
            _ => Recorded::default(),
        };
        for chunk in unchecked.into_iter().flatten() {
            let place = geometry.bytes_of(&(chunk..chunk + 1));
            let wanted = place.start.max(offset)..place.end.min(end);
            let slot = usize_from(wanted.start - offset)..usize_from(wanted.end - offset);
            let slot = out.get_mut(slot).unwrap_or_default();
            let is_right =
                match wanted == place && self.is_right(chunk, slot, recorded.of(chunk))? {
                    true => {
                        self.note_checked(chunk);
                        true
                    }
                    // Only a part of the chunk is wanted, or it is wrong.
                    false => self.read_checked(chunk, wanted.start - place.start, slot)?,
                };
            if !is_right {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads and verifies a whole chunk, and fills `part` with its bytes from `from` on. Drops an altered
    /// chunk and returns false.
    fn read_checked(&self, chunk: u64, from: u64, part: &mut [u8]) -> io::Result<bool> {
        let geometry = self.geometry();
        let place = geometry.bytes_of(&(chunk..chunk + 1));
        let mut bytes = vec![0; usize_from(place.end - place.start)];
        let right = match self.files.data.read_exact_at(&mut bytes, place.start) {
            Ok(()) => {
                let recorded = self.recorded(chunk..chunk + 1)?;
                self.is_right(chunk, &bytes, recorded.of(chunk))?
            }
            // The disk has lost it, or the file was cut.
            Err(error) if is_lost(&error) => false,
            Err(error) => return Err(error),
        };
        if !right {
            self.drop_altered(chunk)?;
            return Ok(false);
        }
        self.note_checked(chunk);
        let found = bytes.get(usize_from(from)..);
        let found = found.and_then(|found| found.get(..part.len()));
        part.copy_from_slice(found.unwrap_or_default());
        Ok(true)
    }

    /// Reads the records of `chunks`. A blob with a table needs none, so the result is empty.
    fn recorded(&self, chunks: Range<u64>) -> io::Result<Recorded> {
        let mut recorded = Recorded::default();
        if self.table.is_none() {
            let note = |chunk, record| recorded.0.push((chunk, record));
            self.files.records.each(chunks, note)?;
        }
        Ok(recorded)
    }

    /// Compares a chunk with its digest or, without a table, with its record.
    fn is_right(&self, chunk: u64, bytes: &[u8], recorded: Record) -> io::Result<bool> {
        let found = self.hashed(bytes);
        match self.compare_with_table(chunk, &found) {
            Some(Ok(())) => Ok(true),
            Some(Err(CacheError::WrongDigest { .. })) => Ok(false),
            Some(Err(error)) => Err(error.into()),
            None => Ok(recorded == found.record),
        }
    }

    /// Records that this process has verified the chunk.
    pub(crate) fn note_checked(&self, chunk: u64) {
        if self.checked.set(chunk) {
            self.unchecked.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Records that the chunk must be verified again before it is served.
    pub(crate) fn note_unchecked(&self, chunk: u64) {
        // The number changes before the bit, so that it is never too low.
        self.unchecked.fetch_add(1, Ordering::AcqRel);
        if !self.checked.clear(chunk) {
            self.unchecked.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Drops an altered chunk, unless another thread has dropped or verified it meanwhile.
    fn drop_altered(&self, chunk: u64) -> io::Result<()> {
        let _one_at_a_time = self.flushing.lock().unpoisoned();
        if !self.present.get(chunk) || self.checked.get(chunk) {
            return Ok(());
        }
        self.altered.fetch_add(1, Ordering::Relaxed);
        let identity = self.identity();
        tracing::warn!(
            chunk,
            identity,
            "a chunk in the cache was altered since it was stored; it is fetched again"
        );
        self.drop_chunks(std::slice::from_ref(&(chunk..chunk + 1)))?;
        Ok(())
    }
}

/// Records of some chunks, in the order of the chunks.
#[derive(Debug, Default)]
struct Recorded(Vec<(u64, Record)>);

impl Recorded {
    /// Returns the record of a chunk.
    fn of(&self, chunk: u64) -> Record {
        let found = self.0.binary_search_by_key(&chunk, |(of, _)| *of);
        let found = found.ok().and_then(|at| self.0.get(at));
        found.map_or(Record::NONE, |(_, record)| *record)
    }
}

/// Returns whether the bytes are lost and must be fetched again.
fn is_lost(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
        || error.raw_os_error() == Some(Errno::IO.raw_os_error())
}
