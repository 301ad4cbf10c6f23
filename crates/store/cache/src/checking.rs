//! Verifies chunks that earlier processes stored, when this process first reads them.
//!
//! The state file tells which chunks were verified and synced. Since then the disk may have altered
//! them, or another program may have written to the file. So each process hashes a chunk at its
//! first use, and serves the bytes from the buffer that it hashed. An altered chunk is counted and
//! dropped, and is then missing.
//!
//! Later reads of the chunk are not hashed: they come from the page cache, or cost one `pread`.

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
    /// Returns whether this process has verified every chunk, or was told to trust them, so that no
    /// read drops a chunk.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.unchecked.load(Ordering::Acquire) == 0
    }

    /// Returns the number of chunks found altered since the blob was opened.
    #[must_use]
    pub fn altered_chunks(&self) -> u64 {
        self.altered.load(Ordering::Relaxed)
    }

    /// Verifies the present chunks that this process has not verified yet, on all cores. Drops
    /// altered ones.
    ///
    /// # Errors
    /// [`CacheError::Io`] if the cache cannot be read; [`CacheError::Table`] if the table has no
    /// digest for a chunk.
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

    /// Fills `out` from `offset` on; all of these chunks must be present. Verifies unverified
    /// chunks, and returns false if one was altered.
    pub(crate) fn read_checking(
        &self,
        reader: &dyn ReadData,
        offset: u64,
        out: &mut [u8],
    ) -> io::Result<bool> {
        let geometry = self.geometry();
        let end = offset + u64_from(out.len());
        let chunks = geometry.chunks_of(&(offset..end));
        // Collect the unverified chunks before the read: a chunk that another thread verifies
        // meanwhile may have been altered when this thread read it.
        let unchecked = if self.is_checked() {
            Vec::new()
        } else {
            self.checked.runs(chunks, false)
        };
        // Read in one request: the kernel's readahead depends on the request length.
        match reader.read(offset, out) {
            // The loop below finds the lost chunk.
            Err(error) if is_lost(&error) && !unchecked.is_empty() => {}
            read => read?,
        }
        let recorded = match (unchecked.first(), unchecked.last()) {
            // A shorter read covers no whole chunk; `read_checked` reads a whole chunk and its
            // record.
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
                    // The chunk is wrong, or only a part of it was read.
                    false => self.read_checked(chunk, wanted.start - place.start, slot)?,
                };
            if !is_right {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads and verifies a whole chunk, and fills `part` with its bytes from `from` on. Drops an
    /// altered chunk and returns false.
    fn read_checked(&self, chunk: u64, from: u64, part: &mut [u8]) -> io::Result<bool> {
        let geometry = self.geometry();
        let place = geometry.bytes_of(&(chunk..chunk + 1));
        let mut bytes = vec![0; usize_from(place.end - place.start)];
        let right = match self.files.data.read_exact_at(&mut bytes, place.start) {
            Ok(()) => {
                let recorded = self.recorded(chunk..chunk + 1)?;
                self.is_right(chunk, &bytes, recorded.of(chunk))?
            }
            // The disk lost the bytes, or the file was truncated.
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

    /// Reads the records of `chunks`. Returns none for a blob with a table, which does not need
    /// them.
    fn recorded(&self, chunks: Range<u64>) -> io::Result<Recorded> {
        let mut recorded = Recorded::default();
        if self.table.is_none() {
            let note = |chunk, record| recorded.0.push((chunk, record));
            self.files.records.each(chunks, note)?;
        }
        Ok(recorded)
    }

    /// Compares a chunk with its digest, or with its record if there is no table.
    fn is_right(&self, chunk: u64, bytes: &[u8], recorded: Record) -> io::Result<bool> {
        let found = self.hashed(bytes);
        match self.compare_with_table(chunk, &found) {
            Some(Ok(())) => Ok(true),
            Some(Err(CacheError::WrongDigest { .. })) => Ok(false),
            Some(Err(error)) => Err(error.into()),
            None => Ok(recorded == found.record),
        }
    }

    pub(crate) fn note_checked(&self, chunk: u64) {
        if self.checked.set(chunk) {
            self.unchecked.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Records that the chunk must be verified before it is served again.
    pub(crate) fn note_unchecked(&self, chunk: u64) {
        // Change the number before the bit, so that it is never too low.
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

/// Records of some chunks, sorted by chunk.
#[derive(Debug, Default)]
struct Recorded(Vec<(u64, Record)>);

impl Recorded {
    fn of(&self, chunk: u64) -> Record {
        let found = self.0.binary_search_by_key(&chunk, |(of, _)| *of);
        let found = found.ok().and_then(|at| self.0.get(at));
        found.map_or(Record::NONE, |(_, record)| *record)
    }
}

/// Returns whether the error means that the bytes are lost and must be fetched again.
fn is_lost(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
        || error.raw_os_error() == Some(Errno::IO.raw_os_error())
}
