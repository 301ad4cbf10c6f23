//! Stores chunks: verifies them, writes them, marks them present, and later makes them durable.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use forerun_io::{Unpoisoned, u64_from, usize_from};
use rustix::fs::FallocateFlags;

use crate::blob::CachedBlob;
use crate::records::Record;
use crate::{CacheError, Result, runs};

impl CachedBlob {
    /// Stores `bytes`, which start at chunk `first` and end at the end of a chunk. Verifies each
    /// chunk if there is a table, and keeps right chunks even if others are wrong. Does not write
    /// chunks that are already present, even if another process stored them.
    ///
    /// # Errors
    /// [`CacheError::WrongDigest`] for the first wrong chunk; [`CacheError::NotChunks`];
    /// [`CacheError::Table`] if the table has no digest; [`CacheError::Io`], also for a full disk.
    pub fn store(&self, first: u64, bytes: &[u8]) -> Result<()> {
        let geometry = self.geometry();
        let Some(chunks) = geometry.whole_chunks(first, bytes.len()) else {
            let len = u64_from(bytes.len());
            return Err(CacheError::NotChunks { first, len });
        };
        // Another process may have stored some chunks, and its readers would see this write: do not
        // write present chunks again.
        let looked = self.look_for(chunks.clone());
        looked.map_err(CacheError::io("read", &self.files.dir))?;
        let mut records = Vec::new();
        let (mut right, mut wrong) = (Vec::new(), None);
        let pieces = bytes.chunks(usize_from(geometry.size()));
        for (chunk, piece) in chunks.zip(pieces) {
            let found = self.hashed(piece);
            records.push(found.record);
            match self.compare_with_table(chunk, &found) {
                _ if self.present.get(chunk) => {}
                None | Some(Ok(())) => runs::push(&mut right, chunk..chunk + 1),
                Some(Err(error)) => wrong = wrong.or(Some(error)),
            }
        }
        for run in right {
            self.write_run(first, bytes, &records, &run)?;
        }
        wrong.map_or(Ok(()), Err)
    }

    /// Writes a run of consecutive verified chunks, with their records.
    fn write_run(
        &self,
        first: u64,
        bytes: &[u8],
        records: &[Record],
        run: &Range<u64>,
    ) -> Result<()> {
        let geometry = self.geometry();
        let start = (run.start - first) * geometry.size();
        let place = geometry.bytes_of(run);
        let end = start + (place.end - place.start);
        let piece = bytes.get(usize_from(start)..usize_from(end));
        let failed = CacheError::io("write", &self.files.dir);
        let piece = piece.unwrap_or_default();
        self.write(piece, place.start).map_err(&failed)?;
        let of_run = usize_from(run.start - first)..usize_from(run.end - first);
        let records = records.get(of_run).unwrap_or_default();
        // Write records after the data: a record without its chunk would cost other processes a
        // read.
        self.files
            .records
            .write(run.start, records)
            .map_err(&failed)?;
        self.arrived(run, u64_from(piece.len()));
        Ok(())
    }

    /// Writes bytes to the data file. Writes zeros as a hole if the filesystem supports that; the
    /// hole also replaces torn old bytes.
    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let is_hole = bytes.iter().all(|byte| *byte == 0)
            && rustix::fs::fallocate(&self.files.data, flags, at, u64_from(bytes.len())).is_ok();
        if is_hole {
            Ok(())
        } else {
            self.files.data.write_all_at(bytes, at)
        }
    }

    /// Marks chunks that were written and are right, and notifies the flusher.
    pub(crate) fn arrived(&self, run: &Range<u64>, bytes: u64) {
        if self.mark(run) > 0 {
            self.cache.stored.fetch_add(bytes, Ordering::Relaxed);
            self.cache.flusher.dirtied(bytes);
        }
        self.wake();
    }

    /// Makes the stored chunks durable: no power cut loses them afterwards.
    ///
    /// # Errors
    /// [`CacheError::Io`] if the disk fails. Chunks that could not be written are missing again. If
    /// only the state file could not be written, the next flush tries again.
    pub fn flush(&self) -> Result<()> {
        let _one_at_a_time = self.flushing.lock().unpoisoned();
        let mut pending = {
            let mut pending = self.pending.lock().unpoisoned();
            std::mem::take(&mut *pending)
        };
        // A temporary blob need not survive a crash.
        if pending.is_empty() || self.files.temporary {
            return Ok(());
        }
        // Chunks that were found wrong meanwhile are no longer present.
        pending = pending
            .into_iter()
            .flat_map(|run| self.present.runs(run, true))
            .collect();
        if let Err(error) = self.sync_data() {
            self.lose(&pending);
            return Err(error);
        }
        // The state comes after the data.
        match self.files.state.change(&pending, &[]) {
            Ok(()) => {
                self.touch();
                for chunk in pending.iter().cloned().flatten() {
                    self.durable.set(chunk);
                }
                Ok(())
            }
            Err(error) => {
                let mut again = self.pending.lock().unpoisoned();
                again.extend(pending);
                Err(error)
            }
        }
    }

    fn sync_data(&self) -> Result<()> {
        let failed = CacheError::io("sync", &self.files.dir);
        self.files.data.sync_data().map_err(&failed)?;
        match self.table {
            None => self.files.records.sync(),
            // Sync the local table too: later reads verify chunks with it, even if no server is
            // reachable.
            Some(_) => self.files.table.sync_data(),
        }
        .map_err(&failed)
    }

    /// Drops chunks that could not be synced. After the error, the kernel marks their pages clean:
    /// the next sync would succeed without them, and later reads may return the old bytes.
    fn lose(&self, chunks: &[Range<u64>]) {
        for chunk in chunks.iter().cloned().flatten() {
            if let Err(error) = self.files.records.write(chunk, &[Record::NONE]) {
                tracing::debug!(%error, chunk, "the record of a lost chunk is still there");
            }
            self.forget(chunk);
        }
    }
}

/// Replaces the text of a small file durably.
pub(crate) fn replace(path: &Path, text: &[u8]) -> Result<()> {
    use std::io::Write as _;
    let dir = path.parent().unwrap_or(path);
    let write = || -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(text)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(CacheError::io("write", path))?;
    crate::opening::sync_dir(dir)
}
