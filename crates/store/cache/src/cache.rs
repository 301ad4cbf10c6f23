//! A cache directory, open.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use forerun_io::Unpoisoned;

use crate::adopt::Index;
use crate::blob::CachedBlob;
use crate::flusher::Flusher;
use crate::geometry::Geometry;
use crate::holder::Holder;
use crate::info::Info;
use crate::layout::Layout;
use crate::{CacheError, Result, VerifiedTable, opening};

/// Options of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheOptions {
    /// Bytes on disk, as allocated, that the cache may take. Images in use are not evicted, not even in
    /// part, and may take more.
    pub limit_bytes: u64,
    /// Bytes that have to stay free on the disk: the cache takes less where they would not. 0 for a cache
    /// that may fill it.
    pub keep_free: u64,
    /// Whether the state is ignored when a blob is opened: every chunk is hashed again before it counts as
    /// present. Catches disks that lie; costs one read and one hash of each chunk.
    pub recheck: bool,
    /// Whether chunks that the state calls verified are served without being hashed at their first use in
    /// this process.
    pub trust: bool,
    /// Stored bytes that make the cache sync without waiting for [`flush_after`](Self::flush_after).
    pub flush_bytes: u64,
    /// How long stored chunks may wait until they are made durable. A kill does not lose them, a power cut
    /// may.
    pub flush_after: Duration,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            limit_bytes: u64::MAX,
            keep_free: 0,
            recheck: false,
            trust: false,
            flush_bytes: 64 << 20,
            flush_after: Duration::from_secs(2),
        }
    }
}

impl CacheOptions {
    /// Returns the defaults with a limit.
    #[must_use]
    pub fn with_limit(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            ..Self::default()
        }
    }
}

/// The identity and properties of a blob to open.
#[derive(Clone, Debug)]
pub struct BlobSpec {
    /// The name of exactly these bytes: the root of their table, their digest, or address and version.
    pub identity: String,
    /// Length in bytes.
    pub len: u64,
    /// Chunk size; that of the table where there is one.
    pub chunk_size: u32,
    /// The digests of the chunks. Without a table, chunks are stored unverified.
    pub table: Option<Arc<VerifiedTable>>,
    /// A name for people, shown in lists.
    pub label: String,
    /// Whether it is removed once it is closed, because nothing can identify its bytes later.
    pub temporary: bool,
}

/// A cache directory. Clones are the same cache.
#[derive(Clone, Debug)]
pub struct Cache {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) layout: Layout,
    pub(crate) options: CacheOptions,
    pub(crate) flusher: Flusher,
    pub(crate) index: Mutex<Index>,
    /// Bytes stored since the last collection began.
    pub(crate) stored: AtomicU64,
    open: Mutex<HashMap<PathBuf, Weak<CachedBlob>>>,
    holder: OnceLock<Holder>,
    making_holder: Mutex<()>,
}

impl Cache {
    /// Opens the cache in `dir`, making it if need be.
    ///
    /// # Errors
    /// [`CacheError::Refused`] for a directory that is not the user's alone.
    pub fn open(dir: &Path, options: CacheOptions) -> Result<Self> {
        let layout = Layout::prepare(dir)?;
        let inner = Arc::new(Inner {
            layout,
            flusher: Flusher::new(&options),
            options,
            index: Mutex::default(),
            stored: AtomicU64::new(0),
            open: Mutex::default(),
            holder: OnceLock::new(),
            making_holder: Mutex::default(),
        });
        Ok(Self { inner })
    }

    /// Returns the options.
    #[must_use]
    pub fn options(&self) -> &CacheOptions {
        &self.inner.options
    }

    /// Returns the places inside the directory.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.inner.layout
    }

    /// Opens the blob of `spec`, or makes it. It is in use, and so kept, until the last handle is dropped.
    /// A second call returns the same blob.
    ///
    /// # Errors
    /// [`CacheError::Spec`] and [`CacheError::Geometry`] for a `spec` that cannot be;
    /// [`CacheError::Conflict`] where another process uses a blob of the same identity and another
    /// shape. A blob of another shape that is not in use is replaced.
    pub fn blob(&self, spec: BlobSpec) -> Result<Arc<CachedBlob>> {
        let geometry = Geometry::new(spec.len, spec.chunk_size)?;
        if let Some(table) = &spec.table
            && table.geometry() != geometry
        {
            return Err(CacheError::Spec {
                identity: spec.identity,
                reason: "its chunk table is for another length or chunk size",
            });
        }
        let root = spec.table.as_ref().map(|table| table.root());
        let info = Info::new(&spec.identity, &spec.label, geometry, root)?;
        let dir = self.inner.layout.blob(&info.identity);
        // The lock is held throughout, so that no blob is opened twice.
        let mut open = self.inner.open_blobs();
        open.retain(|_, blob| blob.strong_count() > 0);
        if let Some(blob) = open.get(&dir).and_then(Weak::upgrade) {
            if blob.info().is_same_blob(&info) {
                return Ok(blob);
            }
            return Err(CacheError::Conflict {
                identity: info.identity,
            });
        }
        let files = opening::open(&self.inner.layout, &info, spec.temporary)?;
        let blob = CachedBlob::new(files, spec.table, Arc::clone(&self.inner))?;
        let blob = Arc::new(blob);
        open.insert(dir, Arc::downgrade(&blob));
        Ok(blob)
    }

    /// Makes durable what all blobs of this cache have stored.
    ///
    /// # Errors
    /// That of the first blob that fails; the others are flushed all the same.
    pub fn flush(&self) -> Result<()> {
        self.inner.flush()
    }
}

impl Inner {
    /// Counts the blobs that this process has open.
    fn open_blobs(&self) -> MutexGuard<'_, HashMap<PathBuf, Weak<CachedBlob>>> {
        self.open.lock().unpoisoned()
    }

    /// Returns handles on the open blobs.
    pub(crate) fn handles(&self) -> Vec<Arc<CachedBlob>> {
        let open = self.open_blobs();
        open.values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the open blob in that directory.
    pub(crate) fn handle(&self, dir: &Path) -> Option<Arc<CachedBlob>> {
        self.open_blobs().get(dir).and_then(Weak::upgrade)
    }

    pub(crate) fn flush(&self) -> Result<()> {
        // Collected first, so that a last handle is not dropped under the lock.
        let handles = self.handles();
        let results: Vec<_> = handles.iter().map(|blob| blob.flush()).collect();
        results.into_iter().collect()
    }

    /// Returns this process as a holder of claims.
    pub(crate) fn holder(&self) -> Result<&Holder> {
        let _one_at_a_time = self.making_holder.lock().unpoisoned();
        if let Some(holder) = self.holder.get() {
            return Ok(holder);
        }
        let holder = Holder::new(&self.layout.holders())?;
        Ok(self.holder.get_or_init(|| holder))
    }

    /// Returns whether enough was stored since the last collection that another one is due.
    pub(crate) fn gc_is_due(&self) -> bool {
        let limit = self.options.limit_bytes;
        let is_limited = limit < u64::MAX || self.options.keep_free > 0;
        is_limited && self.stored.load(Ordering::Relaxed) > (limit / 16).min(256 << 20)
    }
}
