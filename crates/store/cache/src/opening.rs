//! Opens and creates blob directories, while other processes may do the same or remove them.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::claims::Claims;
use crate::holder::{is_still, random};
use crate::info::Info;
use crate::layout::Layout;
use crate::lock::{LOCK_TIMEOUT, open_existing, open_private, within};
use crate::records::Records;
use crate::state::StateFile;
use crate::{CacheError, Digest, Result};

/// Number of attempts if other processes interfere.
const ATTEMPTS: u32 = 100;
pub(crate) const TEMPORARY: &str = "temporary";
/// How long to wait for a lock before checking that the file still exists at its path.
const A_WHILE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct BlobFiles {
    pub(crate) dir: PathBuf,
    pub(crate) info: Info,
    pub(crate) data: File,
    pub(crate) records: Records,
    pub(crate) state: StateFile,
    pub(crate) claims: Claims,
    pub(crate) table: File,
    pub(crate) in_use: File,
    /// Whether closing the blob removes it.
    pub(crate) temporary: bool,
}

impl BlobFiles {
    /// Opens the files in `dir`; `None` unless all exist with the right lengths.
    fn open(dir: &Path, in_use: File) -> Option<Self> {
        let info = Info::read(&dir.join("info"))?;
        let data = open_existing(&dir.join("data")).ok()?;
        if data.metadata().ok()?.len() != info.geometry.len() {
            return None;
        }
        Some(Self {
            data,
            records: Records::new(open_private(&dir.join("records")).ok()?),
            state: StateFile::open(&dir.join("state"), info.geometry.chunks()).ok()?,
            claims: Claims::open(&dir.join("claims")).ok()?,
            table: open_private(&dir.join("table")).ok()?,
            temporary: dir.join(TEMPORARY).exists(),
            dir: dir.to_path_buf(),
            info,
            in_use,
        })
    }

    pub(crate) fn whole(&self) -> Option<Digest> {
        whole(&self.dir)
    }
}

/// Returns the digest that the whole blob in `dir` was verified against.
pub(crate) fn whole(dir: &Path) -> Option<Digest> {
    fs::read_to_string(dir.join("whole"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Opens the blob of `info`. Creates it if it is missing, and replaces a blob of another shape that
/// is not in use.
pub(crate) fn open(layout: &Layout, info: &Info, temporary: bool) -> Result<BlobFiles> {
    let dir = layout.blob(&info.identity);
    for _ in 0..ATTEMPTS {
        let Some(in_use) = lock_use(&dir)? else {
            make(layout, info, temporary, &dir)?;
            continue;
        };
        let again = in_use.try_clone().map_err(CacheError::io("open", &dir))?;
        match BlobFiles::open(&dir, in_use) {
            Some(files) if files.info.is_same_blob(info) => return Ok(files),
            // The blob is broken or has another shape. Both handles share one lock, which now
            // becomes exclusive.
            _ => match again.try_lock() {
                Ok(()) if is_still(&again, &dir.join("use")) => discard(layout, &dir)?,
                Ok(()) => {}
                Err(_) => {
                    return Err(CacheError::Conflict {
                        identity: info.identity.clone(),
                    });
                }
            },
        }
    }
    Err(CacheError::Locked { path: dir })
}

/// Opens an existing blob for maintenance, whatever its shape; `None` if it is missing or broken.
pub(crate) fn open_any(dir: &Path) -> Result<Option<BlobFiles>> {
    Ok(lock_use(dir)?.and_then(|in_use| BlobFiles::open(dir, in_use)))
}

/// Locks the blob in `dir` as in use; `None` if it does not exist.
fn lock_use(dir: &Path) -> Result<Option<File>> {
    let path = dir.join("use");
    let file = match open_existing(&path) {
        Err(CacheError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        other => other?,
    };
    // A process that removes the blob holds the lock until all files are gone, which takes a while
    // for a large file. `path` then no longer names this file, and the loop ends.
    let start = Instant::now();
    while is_still(&file, &path) {
        let locked = within(A_WHILE, || file.try_lock_shared());
        if locked.map_err(CacheError::io("lock", &path))? {
            return Ok(is_still(&file, &path).then_some(file));
        }
        if start.elapsed() > LOCK_TIMEOUT {
            return Err(CacheError::Locked { path });
        }
    }
    Ok(None)
}

/// Creates the blob in a new directory and moves it into place, unless another process was faster.
fn make(layout: &Layout, info: &Info, temporary: bool, dir: &Path) -> Result<()> {
    let new = layout.new_blobs().join(format!("{:016x}", random()));
    DirBuilder::new()
        .mode(0o700)
        .create(&new)
        .map_err(CacheError::io("make", &new))?;
    let made = fill(&new, info, temporary).and_then(|()| {
        match fs::rename(&new, dir) {
            Ok(()) => sync_dir(&layout.blobs()),
            // Another blob was moved here first, and `open` will use it. If that one lacks its file
            // `use`, remove it, or `open` would retry in vain.
            Err(_) if dir.is_dir() => {
                if dir.join("use").exists() {
                    Ok(())
                } else {
                    discard(layout, dir)
                }
            }
            Err(error) => Err(CacheError::io("move", &new)(error)),
        }
    });
    let _moved_or_in_the_way = fs::remove_dir_all(&new);
    made
}

fn fill(new: &Path, info: &Info, temporary: bool) -> Result<()> {
    info.write(&new.join("info"))?;
    let path = new.join("data");
    let data = open_private(&path)?;
    data.set_len(info.geometry.len())
        .map_err(CacheError::io("make", &path))?;
    let path = new.join("records");
    let len = Records::file_len(info.geometry.chunks());
    open_private(&path)?
        .set_len(len)
        .map_err(CacheError::io("make", &path))?;
    let marks = temporary.then_some(TEMPORARY);
    for name in ["use", "state", "claims", "table"].into_iter().chain(marks) {
        open_private(&new.join(name))?;
    }
    sync_dir(new)
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<()> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(CacheError::io("sync", dir))
}

/// Removes a blob that the caller has locked exclusively.
pub(crate) fn discard(layout: &Layout, dir: &Path) -> Result<()> {
    let trash = layout.trash().join(format!("{:016x}", random()));
    fs::rename(dir, &trash).map_err(CacheError::io("remove", dir))?;
    if let Err(error) = fs::remove_dir_all(&trash) {
        // The next collection tries again.
        tracing::debug!(%error, "a removed blob is still there");
    }
    Ok(())
}
