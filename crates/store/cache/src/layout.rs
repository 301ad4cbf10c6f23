//! Layout of a cache directory.
//!
//! ```text
//! DIR/                      owned by the user, not writable by others
//!   CACHEDIR.TAG            makes backup programs skip the directory
//!   v1/                     0700; another version uses another directory
//!     gc                    lock: one process collects at a time
//!     blobs/NAME/           one image; NAME is the SHA-256 of its identity
//!       info                text: identity, label, length, chunk size, hash of the records, root; never changed
//!       use                 lock: shared by users; exclusive for removal. mtime: last use
//!       data                the image's bytes, sparse
//!       records             8 bytes a chunk: start of a hash of what was stored. A hint
//!       state               which chunks are durable (state.rs)
//!       table               verified hash blocks of the chunk table. Verified again on reading
//!       claims              chunks that are being fetched, and by which holder (claims.rs)
//!       whole               digest of the whole image, once it was verified
//!       temporary           exists if closing the blob removes it
//!     names/HASH            what a reference was resolved to (names.rs); HASH is its SHA-256
//!     indexes/HASH          index of an archive (indexes.rs); HASH is the SHA-256 of its identity
//!     holders/ID            locked by a process for as long as it may hold claims
//!     new/                  blobs being made
//!     trash/                blobs being removed
//! ```
//!
//! A chunk is served if this process has stored it, or has verified it at its first use
//! (`checking.rs`). `state` names the chunks that were verified, written and synced, in this order;
//! `records`, the chunks that some process has stored. `records`, `data` and `table` may be torn or
//! lost in any way. `state` is written so that a crash leaves the old or the new state.
//!
//! A process adds a blob by renaming a complete directory into `blobs`. It removes one by locking
//! `use` exclusively and renaming the directory to `trash`. A process that opens a blob locks `use`
//! shared, and then checks that the file is still the one in `blobs`.
//!
//! The directory is trusted as far as its owner: a process that can write to it can damage it.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{CacheError, Digest, Result};

/// Age after which a half-made blob counts as abandoned.
pub(crate) const ABANDONED: Duration = Duration::from_secs(3600);

/// Version of everything below this directory. Another version uses another directory.
const VERSION: &str = "v1";

const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
    # This directory holds copies of remote images made by forerun. It can be deleted.\n";

#[derive(Clone, Debug)]
pub struct Layout {
    top: PathBuf,
}

impl Layout {
    /// Creates missing directories, and checks that no other user may write to them.
    ///
    /// # Errors
    /// [`CacheError::Refused`] for a directory of another user or open to others;
    /// [`CacheError::Io`].
    pub(crate) fn prepare(dir: &Path) -> Result<Self> {
        make(dir, true)?;
        let dir = &dir.canonicalize().map_err(CacheError::io("find", dir))?;
        check_owner(
            dir,
            0o022,
            "other users can write to it; run chmod go-w on it",
        )?;
        let tag = dir.join("CACHEDIR.TAG");
        if !tag.exists()
            && let Err(error) = fs::write(&tag, TAG)
        {
            tracing::debug!(%error, "CACHEDIR.TAG could not be written");
        }
        let top = dir.join(VERSION);
        for below in ["", "blobs", "names", "holders", "indexes", "new", "trash"] {
            let below = top.join(below);
            make(&below, false)?;
            check_owner(
                &below,
                0o077,
                "other users can enter it; run chmod 700 on it",
            )?;
        }
        Ok(Self { top })
    }

    #[must_use]
    pub fn blobs(&self) -> PathBuf {
        self.top.join("blobs")
    }

    /// Returns the directory for the blob of that identity.
    #[must_use]
    pub fn blob(&self, identity: &str) -> PathBuf {
        self.blobs().join(Digest::of(identity.as_bytes()).hex())
    }

    pub(crate) fn names(&self) -> PathBuf {
        self.top.join("names")
    }

    pub(crate) fn indexes(&self) -> PathBuf {
        self.top.join("indexes")
    }

    pub(crate) fn holders(&self) -> PathBuf {
        self.top.join("holders")
    }

    pub(crate) fn new_blobs(&self) -> PathBuf {
        self.top.join("new")
    }

    pub(crate) fn trash(&self) -> PathBuf {
        self.top.join("trash")
    }

    pub(crate) fn gc_lock(&self) -> PathBuf {
        self.top.join("gc")
    }

    pub(crate) fn blob_dirs(&self) -> Result<Vec<PathBuf>> {
        list(&self.blobs())
    }
}

/// Returns the paths of all entries of a directory.
pub(crate) fn list(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).map_err(CacheError::io("list", dir))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    paths
        .collect::<std::io::Result<_>>()
        .map_err(CacheError::io("list", dir))
}

fn make(dir: &Path, parents: bool) -> Result<()> {
    if let Some(parent) = dir.parent()
        && parents
    {
        fs::create_dir_all(parent).map_err(CacheError::io("make", parent))?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(CacheError::io("make", dir)(error))
        }
        _ => Ok(()),
    }
}

/// Returns an error unless the directory belongs to the user and its mode has none of the bits
/// `others`.
fn check_owner(dir: &Path, others: u32, open: &'static str) -> Result<()> {
    let metadata = fs::symlink_metadata(dir).map_err(CacheError::io("look at", dir))?;
    let reason = if !metadata.is_dir() {
        "it is not a directory"
    } else if metadata.uid() != rustix::process::geteuid().as_raw() {
        "it belongs to another user"
    } else if metadata.mode() & others != 0 {
        open
    } else {
        return Ok(());
    };
    Err(CacheError::Refused {
        path: dir.to_path_buf(),
        reason,
    })
}
