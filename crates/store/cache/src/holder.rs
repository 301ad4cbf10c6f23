//! Holders of claims: each process locks a file of its own, so that other processes notice its
//! death.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::lock::open_existing;
use crate::{CacheError, Result};

/// Returns a random number that no other process or thread is likely to draw.
pub(crate) fn random() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

/// A holder of claims. A process may have several.
#[derive(Debug)]
pub(crate) struct Holder {
    id: u64,
    dir: PathBuf,
    _locked: File,
}

impl Holder {
    /// Creates a holder, which is alive until it is dropped.
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        loop {
            let id = random().max(1);
            let path = path_of(dir, id);
            let file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
                .map_err(CacheError::io("make", &path))?;
            // A sweep between the two calls may have removed the file.
            let locked = file.try_lock().is_ok();
            if locked && is_still(&file, &path) {
                return Ok(Self {
                    id,
                    dir: dir.to_path_buf(),
                    _locked: file,
                });
            }
        }
    }

    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Returns whether holder `id`, in this process or another, is alive.
    pub(crate) fn is_alive(&self, id: u64) -> bool {
        id == self.id || is_alive(&self.dir, id)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _left_for_gc = fs::remove_file(path_of(&self.dir, self.id));
    }
}

/// Returns whether a process holds the lock on that holder's file.
fn is_alive(dir: &Path, id: u64) -> bool {
    open_existing(&path_of(dir, id))
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Removes the files of dead holders.
pub(crate) fn sweep(dir: &Path) -> Result<()> {
    for path in crate::layout::list(dir)? {
        let dead = open_existing(&path)
            .ok()
            .filter(|file| file.try_lock().is_ok());
        if let Some(file) = dead {
            let _others_do = fs::remove_file(&path);
            drop(file);
        }
    }
    Ok(())
}

/// Returns whether `path` still names the open file.
pub(crate) fn is_still(file: &File, path: &Path) -> bool {
    let same = || -> io::Result<bool> {
        let (ours, there) = (file.metadata()?, fs::symlink_metadata(path)?);
        Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
    };
    same().unwrap_or(false)
}

fn path_of(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{id:016x}"))
}
