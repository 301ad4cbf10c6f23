//! Eviction: removes whole blobs, least recently used first, and never one in use.
//!
//! A blob is in use while any process holds the shared lock. It keeps all its chunks, even if it
//! alone exceeds the limit, because its readers rely on the chunks that they found present.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, SystemTime};

use crate::cache::Cache;
use crate::holder::{is_still, sweep};
use crate::layout::{ABANDONED, Layout, list};
use crate::lock::open_existing;
use crate::names;
use crate::opening::{TEMPORARY, discard};
use crate::{CacheError, Result};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcReport {
    /// Number of blobs removed.
    pub removed: u64,
    /// Disk space freed, in bytes.
    pub freed_bytes: u64,
    /// Number of blobs that would have been removed if they were not in use.
    pub in_use: u64,
    /// Disk space that the cache still uses, in bytes.
    pub left_bytes: u64,
    /// Whether another process is collecting, so that this call did nothing.
    pub busy: bool,
}

/// What eviction knows about a blob.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) dir: PathBuf,
    pub(crate) last_used: SystemTime,
    pub(crate) disk: u64,
}

impl Cache {
    /// Evicts unused blobs until the cache is below its limit, and removes what crashes left
    /// behind.
    ///
    /// # Errors
    /// [`CacheError::Io`] if the directory cannot be read.
    pub fn gc(&self) -> Result<GcReport> {
        self.shrink(|used| self.target(used))
    }

    /// Like [`gc`](Self::gc), but evicts down to `limit`. With 0, removes all unused blobs.
    ///
    /// # Errors
    /// The errors of [`gc`](Self::gc).
    pub fn shrink_to(&self, limit: u64) -> Result<GcReport> {
        self.shrink(|_used| limit)
    }

    /// Removes blobs until the cache uses at most `limit(size)` bytes, where `size` is its present
    /// size.
    fn shrink(&self, limit: impl Fn(u64) -> u64) -> Result<GcReport> {
        let layout = &self.shared.layout;
        self.shared.stored.store(0, Ordering::Relaxed);
        let lock = crate::lock::open_private(&layout.gc_lock())?;
        if lock.try_lock().is_err() {
            return Ok(GcReport {
                busy: true,
                ..GcReport::default()
            });
        }
        clear_away(layout);
        for dir in layout.blob_dirs()? {
            remove_temporary(layout, &dir);
        }
        let mut found = scan(layout)?;
        found.sort_by_key(|blob| blob.last_used);
        let mut report = GcReport {
            left_bytes: found.iter().map(|blob| blob.disk).sum(),
            ..GcReport::default()
        };
        let limit = limit(report.left_bytes);
        for blob in found {
            if report.left_bytes <= limit {
                break;
            }
            match remove_unused(layout, &blob.dir) {
                Ok(true) => {
                    report.removed += 1;
                    report.freed_bytes += blob.disk;
                    report.left_bytes -= blob.disk;
                }
                Ok(false) => report.in_use += 1,
                Err(error) => tracing::warn!(%error, "a blob could not be evicted"),
            }
        }
        names::forget_gone(layout);
        Ok(report)
    }

    /// Removes the blob of this identity.
    ///
    /// # Errors
    /// [`CacheError::Unknown`]; [`CacheError::InUse`]; [`CacheError::Io`].
    pub fn remove(&self, identity: &str) -> Result<()> {
        let identity = || identity.to_string();
        let dir = self.shared.layout.blob(&identity());
        if !dir.exists() {
            return Err(CacheError::Unknown {
                identity: identity(),
            });
        }
        // Retry: a process that lists the cache locks each blob for a moment.
        for attempt in 0..3 {
            thread::sleep(Duration::from_millis(attempt));
            if remove_unused(&self.shared.layout, &dir)? {
                return Ok(());
            }
        }
        Err(CacheError::InUse {
            identity: identity(),
        })
    }
}

pub(crate) fn scan(layout: &Layout) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for dir in layout.blob_dirs()? {
        let used = fs::metadata(dir.join("use")).and_then(|metadata| metadata.modified());
        found.push(Found {
            // A blob without its `use` file is broken, and is evicted first.
            last_used: used.unwrap_or(SystemTime::UNIX_EPOCH),
            disk: disk_usage(&dir),
            dir,
        });
    }
    Ok(found)
}

/// Returns the disk space that the files of a directory use. Files that vanish meanwhile count as
/// 0.
fn disk_usage(dir: &Path) -> u64 {
    let files = list(dir).unwrap_or_default();
    let blocks = files
        .iter()
        .filter_map(|file| fs::symlink_metadata(file).ok());
    blocks
        .map(|metadata| metadata.blocks().saturating_mul(512))
        .sum()
}

/// Removes the blob unless it is in use. Returns whether it is gone.
fn remove_unused(layout: &Layout, dir: &Path) -> Result<bool> {
    let path = dir.join("use");
    let file = match open_existing(&path) {
        Ok(file) => file,
        Err(_) if !path.exists() && dir.exists() => {
            discard(layout, dir)?;
            return Ok(true);
        }
        Err(_) if !dir.exists() => return Ok(true),
        Err(error) => return Err(error),
    };
    if file.try_lock().is_err() {
        return Ok(false);
    }
    // Otherwise another process has removed the blob, and this path may already name a new one.
    if is_still(&file, &path) {
        discard(layout, dir)?;
    }
    Ok(true)
}

/// Removes a temporary blob if no process uses it.
pub(crate) fn remove_temporary(layout: &Layout, dir: &Path) {
    if dir.join(TEMPORARY).exists()
        && let Err(error) = remove_unused(layout, dir)
    {
        tracing::debug!(%error, "what a killed process left could not be removed");
    }
}

/// Removes what crashes left behind: half-removed and half-made blobs, and files of processes that
/// have ended.
fn clear_away(layout: &Layout) {
    let gone = |result: std::io::Result<()>| {
        if let Err(error) = result {
            tracing::debug!(%error, "something left by a crash could not be removed");
        }
    };
    list(&layout.trash())
        .unwrap_or_default()
        .iter()
        .for_each(|dir| gone(fs::remove_dir_all(dir)));
    for dir in list(&layout.new_blobs()).unwrap_or_default() {
        let made = fs::metadata(&dir).and_then(|metadata| metadata.modified());
        let age = made
            .ok()
            .and_then(|made| SystemTime::now().duration_since(made).ok());
        if age.is_some_and(|age| age > ABANDONED) {
            gone(fs::remove_dir_all(&dir));
        }
    }
    if let Err(error) = sweep(&layout.holders()) {
        tracing::debug!(%error, "files of dead holders could not be removed");
    }
}

pub(crate) fn in_use(dir: &Path) -> bool {
    open_existing(&dir.join("use")).is_ok_and(|file| file.try_lock().is_err())
}
