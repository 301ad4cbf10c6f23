//! File locks with a time limit.
//!
//! `flock` belongs to an open file, not to a thread: two threads that share a handle would both get
//! it. So each lock file has a mutex for threads. A process that is stopped (by ^Z or a debugger)
//! while it holds a lock must not block others forever: they give up with an error.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use forerun_io::Unpoisoned;

use crate::{CacheError, Result};

/// How long a process waits for a lock that another one holds.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// A file whose lock excludes other processes, and other threads of this process.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: File,
    path: PathBuf,
    threads: Mutex<()>,
}

#[derive(Debug)]
pub(crate) struct LockGuard<'a> {
    file: &'a File,
    _threads: MutexGuard<'a, ()>,
}

impl LockFile {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Ok(Self {
            file: open_private(path)?,
            path: path.to_path_buf(),
            threads: Mutex::new(()),
        })
    }

    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Locks the file. Waits for at most [`LOCK_TIMEOUT`].
    pub(crate) fn lock(&self) -> Result<LockGuard<'_>> {
        let threads = self.threads.lock().unpoisoned();
        match within(LOCK_TIMEOUT, || self.file.try_lock()) {
            Ok(true) => Ok(LockGuard {
                file: &self.file,
                _threads: threads,
            }),
            Ok(false) => Err(CacheError::Locked {
                path: self.path.clone(),
            }),
            Err(error) => Err(CacheError::io("lock", &self.path)(error)),
        }
    }
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        // Closing the file unlocks it even if this fails.
        let _unlocked_at_close = self.file.unlock();
    }
}

/// Retries `attempt` while it would block. Returns true on success, false after `patience`.
pub(crate) fn within(
    patience: Duration,
    attempt: impl Fn() -> std::result::Result<(), TryLockError>,
) -> io::Result<bool> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(100);
    loop {
        match attempt() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if start.elapsed() >= patience => return Ok(false),
            Err(TryLockError::WouldBlock) => thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Opens a file for reading and writing, creating it with mode 0600 if needed. Never follows a
/// symbolic link.
pub(crate) fn open_private(path: &Path) -> Result<File> {
    open_with(path, true)
}

/// Opens a file as [`open_private`] does, but only if it exists.
pub(crate) fn open_existing(path: &Path) -> Result<File> {
    open_with(path, false)
}

fn open_with(path: &Path, create: bool) -> Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(create)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
        .map_err(CacheError::io("open", path))
}
