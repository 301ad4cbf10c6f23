//! An image in the cache that this process has open.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use forerun_io::{Unpoisoned, past_end, u64_from};

use crate::bitmap::Bitmap;
use crate::geometry::Geometry;
use crate::holder::is_still;
use crate::info::Info;
use crate::opening::{BlobFiles, discard};
use crate::shared::CacheShared;
use crate::{CacheError, Result, TableTrust, VerifiedTable};

/// Longest pause between two polls for a chunk that another process fetches.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Reads the data file of a blob: through a plain descriptor, or through a reader that knows the
/// access pattern.
pub trait ReadData {
    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// The errors of [`FileExt::read_exact_at`].
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
}

impl ReadData for File {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(out, offset)
    }
}

/// The outcome of waiting for a chunk that another caller has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    Present,
    /// The chunk is missing and the claim is gone: the caller should claim it.
    Free,
    /// The chunk is still claimed.
    TimedOut,
}

/// An image in the cache: its present chunks, and methods that add chunks. Dropping it flushes it.
#[derive(Debug)]
pub struct CachedBlob {
    pub(crate) files: BlobFiles,
    pub(crate) table: Option<Arc<VerifiedTable>>,
    pub(crate) trust: TableTrust,
    pub(crate) cache: Arc<CacheShared>,
    /// Chunks that may be served.
    pub(crate) present: Bitmap,
    /// Chunks that the state file records as durable, as far as this process knows.
    pub(crate) durable: Bitmap,
    /// Number of chunks that are not present. It may briefly be higher than the bitmap shows, but
    /// never lower.
    pub(crate) missing: AtomicU64,
    /// Chunks that this process has verified.
    pub(crate) checked: Bitmap,
    /// Number of chunks that this process has not verified; never lower than the bitmap shows.
    pub(crate) unchecked: AtomicU64,
    pub(crate) altered: AtomicU64,
    pub(crate) verified_whole: AtomicBool,
    /// Chunks that are present but not yet durable.
    pub(crate) pending: Mutex<Vec<Range<u64>>>,
    /// Held during a flush, so that only one runs at a time.
    pub(crate) flushing: Mutex<()>,
    arrivals: Mutex<u64>,
    arrived: Condvar,
}

impl CachedBlob {
    pub(crate) fn new(
        files: BlobFiles,
        table: Option<Arc<VerifiedTable>>,
        trust: TableTrust,
        cache: Arc<CacheShared>,
    ) -> Result<Self> {
        let geometry = files.info.geometry;
        let failed = CacheError::io("read", &files.dir);
        let durable = files.state.load().map_err(failed)?;
        if let Some(table) = &table
            && trust == TableTrust::Proven
            && let Ok(file) = files.table.try_clone()
        {
            table.keep_in(file);
        }
        let is_named_by_table = table.is_some() && trust == TableTrust::Proven;
        let whole = !is_named_by_table && files.whole().is_some();
        let present = Bitmap::new(geometry.chunks());
        // Believe the state file even without a table: each chunk is compared with its record at
        // its first use. A complete image is then known to be complete, so readers neither look for
        // single chunks nor need a server.
        if !cache.options.recheck {
            present.copy_from(&durable);
        }
        let missing = geometry.chunks() - present.count();
        let checked = Bitmap::new(geometry.chunks());
        // Chunks may have been stored without the table, and so unverified.
        if cache.options.trust && (table.is_none() || is_named_by_table || whole) {
            checked.copy_from(&present);
        }
        let unchecked = geometry.chunks() - checked.count();
        let blob = Self {
            files,
            table,
            trust,
            cache,
            present,
            durable,
            missing: AtomicU64::new(missing),
            checked,
            unchecked: AtomicU64::new(unchecked),
            altered: AtomicU64::new(0),
            verified_whole: AtomicBool::new(whole),
            pending: Mutex::default(),
            flushing: Mutex::default(),
            arrivals: Mutex::default(),
            arrived: Condvar::new(),
        };
        blob.touch();
        Ok(blob)
    }

    pub(crate) const fn info(&self) -> &Info {
        &self.files.info
    }

    #[must_use]
    pub fn identity(&self) -> &str {
        &self.files.info.identity
    }

    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.files.info.geometry
    }

    #[must_use]
    pub const fn table(&self) -> Option<&Arc<VerifiedTable>> {
        self.table.as_ref()
    }

    #[must_use]
    pub const fn trust(&self) -> TableTrust {
        self.trust
    }

    /// Returns whether the bytes were verified, either chunk by chunk against the table or as a
    /// whole.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        let by_table = self.table.is_some() && self.trust != TableTrust::Claimed;
        by_table || self.verified_whole.load(Ordering::Acquire)
    }

    /// Returns whether all chunks are present, so that reads find no chunk missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }

    /// Returns whether the state file records all chunks as durable. They are verified when they
    /// are read.
    #[must_use]
    pub fn is_stored_whole(&self) -> bool {
        self.durable.count() == self.geometry().chunks()
    }

    /// Returns the number of present bytes, for progress displays. Counts the last chunk as a full
    /// one.
    #[must_use]
    pub fn local_bytes(&self) -> u64 {
        let geometry = self.geometry();
        let chunks = geometry.chunks() - self.missing.load(Ordering::Acquire);
        (chunks * geometry.size()).min(geometry.len())
    }

    /// Returns the sparse file with the image's bytes, of which only present chunks are valid. The
    /// caller must not write to it. Reads of it are not verified:
    /// [`read_if_present`](Self::read_if_present) and [`check_rest`](Self::check_rest) verify
    /// chunks.
    #[must_use]
    pub const fn data_file(&self) -> &File {
        &self.files.data
    }

    /// Returns the memory that this blob uses, in bytes, without the table.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.present.bytes() + self.durable.bytes() + self.checked.bytes()
    }

    /// Fills `out` from `offset` on if all of these bytes are present, and returns whether they
    /// were. A chunk that this process has verified costs one bitmap lookup and one `pread`. Other
    /// chunks are verified first; an altered chunk is dropped and counts as missing.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] past the end; any error of the disk.
    pub fn read_if_present(&self, offset: u64, out: &mut [u8]) -> io::Result<bool> {
        self.read_if_present_by(&self.files.data, offset, out)
    }

    /// Like [`read_if_present`](Self::read_if_present), but reads the [data file](Self::data_file)
    /// through `reader`.
    ///
    /// # Errors
    /// The errors of [`read_if_present`](Self::read_if_present).
    pub fn read_if_present_by(
        &self,
        reader: &dyn ReadData,
        offset: u64,
        out: &mut [u8],
    ) -> io::Result<bool> {
        let geometry = self.geometry();
        past_end(offset, out.len(), geometry.len())?;
        if !self.is_complete() {
            let end = offset + u64_from(out.len());
            let chunks = geometry.chunks_of(&(offset..end));
            if !self.present.all(chunks.clone()) && !self.look_for(chunks)? {
                return Ok(false);
            }
        }
        self.read_checking(reader, offset, out)
    }

    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// The errors of [`read_if_present`](Self::read_if_present), and [`io::ErrorKind::WouldBlock`]
    /// with a [`CacheError::Missing`] if a chunk is missing.
    pub fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.read_if_present(offset, out)? {
            return Ok(());
        }
        let end = offset + u64_from(out.len());
        let chunks = self.geometry().chunks_of(&(offset..end));
        let missing = self.present.runs(chunks.clone(), false);
        let chunk = missing.first().map_or(chunks.start, |run| run.start);
        Err(CacheError::Missing { chunk }.into())
    }

    /// Ends a claim and wakes the threads that wait for its chunks.
    pub(crate) fn release(&self, mine: &[Range<u64>]) {
        let released = self
            .cache
            .holder()
            .and_then(|holder| self.files.claims.release(mine, holder.id()));
        if let Err(error) = released {
            // Other processes see the claim until this one exits. After their time limit they fetch
            // the chunks.
            tracing::warn!(%error, "a claim could not be taken back");
        }
        self.wake();
    }

    /// Returns the state of a claimed chunk without waiting.
    ///
    /// # Errors
    /// [`CacheError::Io`].
    pub fn poll(&self, chunk: u64) -> Result<Waited> {
        if self.is_present(chunk)? {
            return Ok(Waited::Present);
        }
        if self.files.claims.is_held(chunk, self.cache.holder()?)? {
            return Ok(Waited::TimedOut);
        }
        // The chunk may have been stored and released between the two checks.
        if self.is_present(chunk)? {
            Ok(Waited::Present)
        } else {
            Ok(Waited::Free)
        }
    }

    /// Waits until a chunk that another caller has claimed is present or no longer claimed. A chunk
    /// stored by this process wakes the caller; for chunks of other processes, it polls at least
    /// every 20 ms.
    ///
    /// # Errors
    /// [`CacheError::Io`].
    pub fn wait(&self, chunk: u64, timeout: Duration) -> Result<Waited> {
        let start = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            let seen = *self.arrivals();
            let waited = self.poll(chunk)?;
            let left = timeout.saturating_sub(start.elapsed());
            if waited != Waited::TimedOut || left.is_zero() {
                return Ok(waited);
            }
            let arrivals = self.arrivals();
            let nothing_new = |arrivals: &mut u64| *arrivals == seen;
            drop(
                self.arrived
                    .wait_timeout_while(arrivals, pause.min(left), nothing_new),
            );
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Wakes the threads in [`wait`](Self::wait) after a chunk was stored or a claim released.
    pub(crate) fn wake(&self) {
        *self.arrivals() += 1;
        self.arrived.notify_all();
    }

    fn arrivals(&self) -> MutexGuard<'_, u64> {
        self.arrivals.lock().unpoisoned()
    }

    /// Removes a temporary blob from the cache unless another process uses it. Open descriptors of
    /// the data file stay readable.
    pub fn remove_temporary(&self) {
        if !self.files.temporary {
            return;
        }
        // This descriptor holds a shared lock, which now becomes exclusive.
        let path = self.files.dir.join("use");
        if self.files.in_use.try_lock().is_err() || !is_still(&self.files.in_use, &path) {
            return;
        }
        if let Err(error) = discard(&self.cache.layout, &self.files.dir) {
            tracing::warn!(%error, "a temporary copy is still in the cache");
        }
    }

    /// Sets the time of last use to now.
    pub(crate) fn touch(&self) {
        if let Err(error) = self.files.in_use.set_modified(SystemTime::now()) {
            tracing::debug!(%error, "the time of last use could not be noted");
        }
    }
}

impl Drop for CachedBlob {
    fn drop(&mut self) {
        if let Err(error) = self.flush() {
            tracing::warn!(%error, identity = self.identity(), "chunks could not be made durable");
        }
        self.touch();
        self.remove_temporary();
    }
}
