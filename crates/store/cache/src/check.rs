//! Hashes stored chunks again, and drops wrong ones.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use forerun_io::{ReadAt, Unpoisoned, u64_from, usize_from};
use sha2::{Digest as _, Sha256};

use crate::bitmap::Bitmap;
use crate::blob::CachedBlob;
use crate::cache::Cache;
use crate::evict::in_use;
use crate::records::Record;
use crate::table::{ChunkTable, TableBuilder};
use crate::{
    BadGeometry, CacheError, Digest, Result, TableTrust, VerifiedTable, cores, opening, runs, store,
};

/// Bytes hashed at a time for the digest of a whole blob.
const STEP: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    pub identity: String,
    pub label: String,
    /// Number of chunks hashed.
    pub checked: u64,
    /// Number of these chunks that were compared only with their records, because the table or this
    /// part of it is missing.
    pub unverified: u64,
    /// Wrong chunks, which were dropped.
    pub wrong: Vec<Range<u64>>,
    /// Whether the blob was in use. Other processes that use it may still serve wrong chunks that
    /// they verified earlier; mounts of the image must be made again.
    pub in_use: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Right,
    AsRecorded,
    Wrong,
}

/// Replaces the server as source of a chunk table, so that only its local part is used.
struct NoSource(u64);

impl ReadAt for NoSource {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_exact_at(&self, _offset: u64, _out: &mut [u8]) -> io::Result<()> {
        Err(io::Error::new(
            io::ErrorKind::NotConnected,
            "this part of the chunk table is not in the cache",
        ))
    }
}

impl Cache {
    /// Hashes every chunk of every blob, and drops wrong ones. Calls `seen` with each blob's
    /// report.
    ///
    /// # Errors
    /// [`CacheError::Io`] if the directory cannot be read or a wrong chunk cannot be dropped.
    pub fn verify(&self, mut seen: impl FnMut(CheckReport)) -> Result<()> {
        for dir in self.shared.layout.blob_dirs()? {
            if let Some(report) = self.verify_dir(&dir)? {
                seen(report);
            }
        }
        Ok(())
    }

    fn verify_dir(&self, dir: &Path) -> Result<Option<CheckReport>> {
        let in_use = in_use(dir);
        if let Some(blob) = self.open.handle(dir) {
            return blob.check(in_use).map(Some);
        }
        let Some(files) = opening::open_any(dir)? else {
            return Ok(None);
        };
        let geometry = files.info.geometry;
        let table = |root| {
            let source = Arc::new(NoSource(geometry.table_len()));
            VerifiedTable::new(source, geometry, root).map(Arc::new)
        };
        let table = files.info.root.map(table).transpose()?;
        let blob = CachedBlob::new(files, table, TableTrust::Proven, Arc::clone(&self.shared))?;
        blob.check(in_use).map(Some)
    }
}

impl CachedBlob {
    /// Compares the whole blob, which must be complete, with its digest. If they match, the blob
    /// counts as verified from then on; otherwise all its chunks are dropped.
    ///
    /// # Errors
    /// [`CacheError::WrongWhole`]; [`CacheError::Missing`] if it is not complete;
    /// [`CacheError::Io`].
    pub fn verify_whole(&self, expected: Digest) -> Result<()> {
        self.verify_and(expected, &mut |_| Ok(()))
    }

    /// Like [`verify_whole`](Self::verify_whole), and builds the chunk table from the same bytes.
    ///
    /// # Errors
    /// The errors of [`verify_whole`](Self::verify_whole).
    pub fn verify_with_table(&self, expected: Digest) -> Result<ChunkTable> {
        let bad = |error: BadGeometry| CacheError::Geometry(error);
        let mut table = TableBuilder::new(self.geometry().chunk_size()).map_err(bad)?;
        self.verify_and(expected, &mut |bytes| table.push(bytes).map_err(bad))?;
        table.finish().map_err(bad)
    }

    /// Compares the whole blob with its digest. Passes all bytes to `take` in order.
    fn verify_and(
        &self,
        expected: Digest,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let all = 0..self.geometry().chunks();
        if let Some(run) = self.missing(all.clone())?.first() {
            return Err(CacheError::Missing { chunk: run.start });
        }
        let found = self.whole_digest(take)?;
        if found != expected {
            self.drop_wrong(std::slice::from_ref(&all))?;
            return Err(CacheError::WrongWhole { expected, found });
        }
        // The state must be durable before the file `whole`, which vouches for all chunks.
        self.flush()?;
        store::replace(
            &self.files.dir.join("whole"),
            format!("{expected}\n").as_bytes(),
        )?;
        self.verified_whole.store(true, Ordering::Release);
        Ok(())
    }

    fn whole_digest(&self, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<Digest> {
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; STEP];
        let (mut at, len) = (0, self.geometry().len());
        while at < len {
            let step = usize_from(len - at).min(STEP);
            let bytes = buffer.get_mut(..step).unwrap_or_default();
            let read = self.files.data.read_exact_at(bytes, at);
            read.map_err(CacheError::io("read", &self.files.dir))?;
            hasher.update(&*bytes);
            take(bytes)?;
            at += u64_from(step);
        }
        Ok(Digest(hasher.finalize().into()))
    }

    /// Hashes all present chunks, and drops wrong ones.
    fn check(&self, in_use: bool) -> Result<CheckReport> {
        let failed = CacheError::io("read", &self.files.dir);
        let stored = Bitmap::new(self.present.len());
        stored.copy_from(&self.present);
        stored.copy_from(&self.files.state.load().map_err(&failed)?);
        let mut records = std::collections::HashMap::new();
        let note = |chunk, record| {
            stored.set(chunk);
            records.insert(chunk, record);
        };
        self.files
            .records
            .each(0..stored.len(), note)
            .map_err(&failed)?;
        let runs = stored.runs(0..stored.len(), true);
        let chunks: Vec<u64> = runs.into_iter().flatten().collect();
        let verdicts = self.verdicts(&chunks, &records).map_err(&failed)?;
        let (mut wrong, mut unverified) = (Vec::new(), 0);
        for (chunk, verdict) in chunks.iter().zip(verdicts) {
            match verdict {
                Verdict::Right => {}
                Verdict::AsRecorded => unverified += 1,
                Verdict::Wrong => runs::push(&mut wrong, *chunk..*chunk + 1),
            }
        }
        if !wrong.is_empty() {
            self.drop_wrong(&wrong)?;
        }
        Ok(CheckReport {
            identity: self.identity().to_string(),
            label: self.info().label.clone(),
            checked: u64_from(chunks.len()),
            unverified,
            wrong,
            in_use,
        })
    }

    /// Checks each chunk, on all cores.
    fn verdicts(
        &self,
        chunks: &[u64],
        records: &std::collections::HashMap<u64, Record>,
    ) -> io::Result<Vec<Verdict>> {
        let verdicts = Mutex::new(vec![Verdict::Right; chunks.len()]);
        let work = |at: usize| {
            let Some(chunk) = chunks.get(at) else {
                return Ok(());
            };
            let verdict = self.verdict(*chunk, records.get(chunk).copied())?;
            let mut verdicts = verdicts.lock().unpoisoned();
            if let Some(slot) = verdicts.get_mut(at) {
                *slot = verdict;
            }
            Ok(())
        };
        cores::for_each(chunks.len(), u64_from(STEP), work)?;
        Ok(verdicts.into_inner().unpoisoned())
    }

    fn verdict(&self, chunk: u64, record: Option<Record>) -> io::Result<Verdict> {
        let found = match self.hashed_on_disk(chunk) {
            Ok(found) => found,
            // The disk cannot read the chunk, so it is lost.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                return Ok(Verdict::Wrong);
            }
            Err(error) => return Err(error),
        };
        let as_recorded = record == Some(found.record);
        let by_record = if as_recorded {
            Verdict::AsRecorded
        } else {
            Verdict::Wrong
        };
        let is_whole = || self.verified_whole.load(Ordering::Acquire);
        Ok(match self.compare_with_table(chunk, &found) {
            Some(Ok(())) => Verdict::Right,
            Some(Err(CacheError::WrongDigest { .. })) => Verdict::Wrong,
            None if as_recorded && is_whole() => Verdict::Right,
            Some(Err(_)) | None => by_record,
        })
    }

    /// Drops the chunks of `bytes`, which a reader found to be wrong, so that they are fetched
    /// again. Does nothing for a verified blob.
    pub fn drop_range(&self, bytes: &Range<u64>) -> Result<()> {
        if self.table().is_some() || self.is_verified() {
            return Ok(());
        }
        let end = bytes.end.min(self.geometry().len());
        if bytes.start >= end {
            return Ok(());
        }
        let chunks = self.geometry().chunks_of(&(bytes.start..end));
        self.drop_wrong(&self.known_present(chunks))
    }

    /// Drops wrong chunks durably, so that they are fetched again.
    fn drop_wrong(&self, wrong: &[Range<u64>]) -> Result<()> {
        let _no_flush_meanwhile = self.flushing.lock().unpoisoned();
        self.drop_chunks(wrong)
    }

    /// Like [`drop_wrong`](Self::drop_wrong), for a caller that already holds `flushing`.
    pub(crate) fn drop_chunks(&self, wrong: &[Range<u64>]) -> Result<()> {
        let failed = CacheError::io("write", &self.files.dir);
        // A chunk that is fetched again is not covered by the earlier verdict on the whole blob.
        self.verified_whole.store(false, Ordering::Release);
        match fs::remove_file(self.files.dir.join("whole")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Err(_) => {}
            Ok(()) => opening::sync_dir(&self.files.dir)?,
        }
        for chunk in wrong.iter().cloned().flatten() {
            // Clear the record first: otherwise a reader could find it meanwhile and mark the chunk
            // as present again.
            self.files
                .records
                .write(chunk, &[Record::NONE])
                .map_err(&failed)?;
            self.forget(chunk);
        }
        self.files.state.change(&[], wrong)
    }
}
