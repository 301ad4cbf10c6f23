//! An open cache directory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use forerun_io::Unpoisoned;

use crate::blob::CachedBlob;
use crate::flusher::Flusher;
use crate::geometry::Geometry;
use crate::info::Info;
use crate::layout::Layout;
use crate::options::CacheOptions;
use crate::shared::CacheShared;
use crate::{CacheError, Result, TableTrust, VerifiedTable, opening};

#[derive(Clone, Debug)]
pub struct BlobSpec {
    /// A name for exactly these bytes: the root of their table, their digest, or address and
    /// version.
    pub identity: String,
    pub len: u64,
    /// Chunk size; must equal that of the table if there is one.
    pub chunk_size: u32,
    /// The digests of the chunks. Without a table, chunks are stored unverified.
    pub table: Option<Arc<VerifiedTable>>,
    /// How far the table is trusted. This decides which chunks are compared with it again, and when
    /// the blob counts as verified.
    pub trust: TableTrust,
    /// A display name.
    pub label: String,
    /// Whether closing the blob removes it, because nothing can identify its bytes later.
    pub temporary: bool,
}

/// A cache directory. Clones refer to the same cache.
#[derive(Clone, Debug)]
pub struct Cache {
    pub(crate) shared: Arc<CacheShared>,
    pub(crate) open: Arc<OpenBlobs>,
}

/// The blobs that this process has open, by directory.
#[derive(Debug, Default)]
pub(crate) struct OpenBlobs(Mutex<HashMap<PathBuf, Weak<CachedBlob>>>);

impl Cache {
    /// Opens the cache in `dir`, and creates the directory if needed.
    ///
    /// # Errors
    /// [`CacheError::Refused`] for a directory that other users own or can write to.
    pub fn open(dir: &Path, options: CacheOptions) -> Result<Self> {
        let layout = Layout::prepare(dir)?;
        let open = Arc::<OpenBlobs>::default();
        let shared = Arc::new_cyclic(|shared: &Weak<CacheShared>| {
            let (shared, open) = (Weak::clone(shared), Arc::clone(&open));
            let tend = move || {
                let (shared, open) = (shared.upgrade()?, Arc::clone(&open));
                Some(Self { shared, open }.tend())
            };
            let flusher = Flusher::new(&options, Box::new(tend));
            CacheShared::new(layout, options, flusher)
        });
        Ok(Self { shared, open })
    }

    #[must_use]
    pub fn options(&self) -> &CacheOptions {
        &self.shared.options
    }

    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.shared.layout
    }

    /// Opens the blob that `spec` describes, or creates it. The blob is in use, and is not evicted,
    /// until the last handle is dropped. A second call returns the same blob.
    ///
    /// # Errors
    /// [`CacheError::Spec`] and [`CacheError::Geometry`] for an impossible `spec`;
    /// [`CacheError::Conflict`] if another process uses a blob with the same identity but another
    /// length, chunk size or root. If no process uses that blob, it is replaced.
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
        let proven = spec.table.as_ref();
        let proven = proven.filter(|_| spec.trust == TableTrust::Proven);
        let root = proven.map(|table| table.root());
        let info = Info::new(&spec.identity, &spec.label, geometry, root)?;
        let dir = self.shared.layout.blob(&info.identity);
        // Hold the lock throughout, so that no blob is opened twice.
        let mut open = self.open.lock();
        open.retain(|_, blob| blob.strong_count() > 0);
        if let Some(blob) = open.get(&dir).and_then(Weak::upgrade) {
            if blob.info().is_same_blob(&info) {
                return Ok(blob);
            }
            return Err(CacheError::Conflict {
                identity: info.identity,
            });
        }
        let files = opening::open(&self.shared.layout, &info, spec.temporary)?;
        let blob = CachedBlob::new(files, spec.table, spec.trust, Arc::clone(&self.shared))?;
        let blob = Arc::new(blob);
        open.insert(dir, Arc::downgrade(&blob));
        Ok(blob)
    }

    /// Makes all stored chunks of this cache durable.
    ///
    /// # Errors
    /// The error of the first blob that fails. Other blobs are flushed nevertheless.
    pub fn flush(&self) -> Result<()> {
        self.open.flush()
    }

    /// Flushes all blobs and enforces the limit; runs on the background thread. Returns whether a
    /// flush failed, so that it must be retried soon.
    fn tend(&self) -> bool {
        let flushed = self.flush();
        if let Err(error) = &flushed {
            tracing::warn!(%error, "chunks could not be made durable");
        }
        let idle = self.open.handles().iter().all(|blob| blob.is_complete());
        self.shared.index.lock().unpoisoned().forget(idle);
        if self.shared.gc_is_due()
            && let Err(error) = self.gc()
        {
            tracing::warn!(%error, "the cache could not be brought below its limit");
        }
        flushed.is_err()
    }
}

impl OpenBlobs {
    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Weak<CachedBlob>>> {
        self.0.lock().unpoisoned()
    }

    fn handles(&self) -> Vec<Arc<CachedBlob>> {
        let open = self.lock();
        open.values().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn handle(&self, dir: &Path) -> Option<Arc<CachedBlob>> {
        self.lock().get(dir).and_then(Weak::upgrade)
    }

    fn flush(&self) -> Result<()> {
        // Collect the handles first, so that the last handle of a blob is not dropped under the
        // lock.
        let handles = self.handles();
        let results: Vec<_> = handles.iter().map(|blob| blob.flush()).collect();
        results.into_iter().collect()
    }
}
