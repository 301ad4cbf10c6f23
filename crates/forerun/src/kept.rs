//! Indexes that are stored from one opening of an archive to the next.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use forerun_cache::IndexSlot;
use forerun_vfs::KeepIndex;

use crate::OpenOptions;

/// The index of one archive in a cache directory, for [`OpenOptions::index`]. Opening the archive
/// stores the index there, and the next opening uses it. The index is valid while the path, length
/// and times of the archive file stay the same.
///
/// ```
#[doc = include_str!("example.md")]
/// use std::path::Path;
///
/// use forerun::unstable::KeptIndex;
/// use forerun::OpenOptions;
///
/// # std::fs::copy("x.sqsh", "a.tar.gz")?;
/// let (cache, archive) = (Path::new("cache"), Path::new("a.tar.gz"));
/// let mut options = OpenOptions::new();
/// let index = KeptIndex::open(cache, archive, &archive.metadata()?, &options)?;
/// options.index = Some(std::sync::Arc::new(index));
/// let image = options.open(archive)?;
/// # assert_eq!(image.format(), "squashfs");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct KeptIndex {
    slot: IndexSlot,
}

impl KeptIndex {
    /// Opens the index of the archive in the file at `path`, at the offset that `options` give.
    /// `metadata` is that of the open file. Later calls open no files: they only rename and remove
    /// files in [`dir`](Self::dir).
    ///
    /// # Errors
    /// The errors of the cache: a directory that others may write, any error of making files there.
    pub fn open(
        cache: &Path,
        path: &Path,
        metadata: &Metadata,
        options: &OpenOptions,
    ) -> forerun_cache::Result<Self> {
        let identity = format!(
            "{} {} part {}+{:?}",
            env!("CARGO_PKG_VERSION"),
            identity_of_file(path, metadata),
            options.offset,
            options.size,
        );
        let slot = IndexSlot::open(cache, &identity)?;
        Ok(Self { slot })
    }

    /// Creates and returns the directory of indexes in a cache directory, for a process that will
    /// not be allowed to create it later.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn make_dir(cache: &Path) -> forerun_cache::Result<PathBuf> {
        IndexSlot::make_dir(cache)
    }

    /// Opens the index of an archive whose bytes were verified to have this digest.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of_digest(cache: &Path, digest: &str) -> forerun_cache::Result<Self> {
        let identity = format!("{} digest {digest}", env!("CARGO_PKG_VERSION"));
        let slot = IndexSlot::open(cache, &identity)?;
        Ok(Self { slot })
    }

    /// Returns the directory in which the index file is renamed or removed.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.slot.dir()
    }
}

/// Returns a text that changes when the file at `path`, with this metadata, is modified or
/// replaced: that changes its times or its inode.
pub fn identity_of_file(path: &Path, metadata: &Metadata) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| PathBuf::from(path));
    format!(
        "file {path:?} inode {} length {} modified {}.{:09} changed {}.{:09}",
        metadata.ino(),
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    )
}

impl KeepIndex for KeptIndex {
    fn load(&self, most: u64) -> Option<Vec<u8>> {
        self.slot.load(most).map(<[u8]>::to_vec)
    }

    fn is_kept(&self) -> bool {
        self.slot.load(u64::MAX).is_some()
    }

    fn store(&self, index: &[u8]) {
        if let Err(error) = self.slot.store(index) {
            tracing::debug!(%error, "the index of the archive could not be kept");
        }
    }
}
