//! The partial image of an interrupted pull, from which the next pull continues.
//!
//! `OUTPUT.part` is a directory with a cache of this one image. Its data file becomes `OUTPUT` by a
//! rename when it is complete, so nothing is copied. The cache protects it against crashes and torn
//! writes: a chunk counts as present if it was recorded and its bytes, read again, match the table
//! or the record. Data of another version is removed. One process at a time fills the directory.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun_cache::{
    BlobSpec, Cache, CacheError, CacheOptions, CachedBlob, TableTrust, VerifiedTable,
};
use tempfile::TempPath;

use crate::error::cache_error;
use crate::{Layout, RemoteError, Result};

/// How often the directory is created again because another process removed it meanwhile.
const ATTEMPTS: u32 = 10;

pub struct Partial {
    dir: PathBuf,
    output: PathBuf,
    cache: Cache,
    blob: Arc<CachedBlob>,
    _lock: File,
}

impl Partial {
    /// Opens the partial image that an earlier pull of `layout` to `output` left, or creates an
    /// empty one.
    pub fn open(
        layout: &Layout,
        output: &Path,
        chunk_size: u32,
        table: Option<VerifiedTable>,
    ) -> Result<Self> {
        let mut name = output.as_os_str().to_os_string();
        name.push(".part");
        let dir = PathBuf::from(name);
        let failed = |error: CacheError| match cache_error(&error) {
            RemoteError::Cache { reason, .. } => unwritable(&dir, &reason),
            error => error,
        };
        let (cache, lock) = locked(&dir)
            .map_err(|error| unwritable(&dir, &error.to_string()))?
            .map_err(failed)?;
        let identity = layout.identity.to_string();
        for other in cache.list().map_err(failed)? {
            if other.identity != identity {
                tracing::info!(place = other.label, "the part of another image is removed");
                cache.remove(&other.identity).map_err(failed)?;
            }
        }
        let blob = cache.blob(BlobSpec {
            identity,
            len: layout.len,
            chunk_size,
            table: table.map(Arc::new),
            trust: TableTrust::default(),
            label: layout.place.clone(),
            // Chunks of an interrupted pull are kept beside the output.
            temporary: false,
        });
        Ok(Self {
            blob: blob.map_err(failed)?,
            output: output.to_path_buf(),
            cache,
            dir,
            _lock: lock,
        })
    }

    pub const fn blob(&self) -> &Arc<CachedBlob> {
        &self.blob
    }

    /// Gives the complete image its name durably.
    pub fn publish(self, overwrite: bool) -> Result<()> {
        let failed = |error: &io::Error| unwritable(&self.output, &error.to_string());
        let flushed = self.blob.flush();
        flushed.map_err(|error| unwritable(&self.output, &error.to_string()))?;
        let data = self.cache.layout().blob(self.blob.identity()).join("data");
        self.rename(&data, overwrite)
            .map_err(|error| failed(&error))?;
        self.remove();
        Ok(())
    }

    fn rename(&self, data: &Path, overwrite: bool) -> io::Result<()> {
        fs::set_permissions(data, usual_mode(&self.dir)?)?;
        let data = TempPath::try_from_path(data)?;
        let renamed = if overwrite {
            data.persist(&self.output)
        } else {
            data.persist_noclobber(&self.output)
        };
        if let Err(failed) = renamed {
            // Otherwise dropping the error would remove the file.
            let _kept = failed.path.keep();
            return Err(failed.error);
        }
        let parent = match self.output.parent() {
            Some(dir) if dir != Path::new("") => dir,
            _ => Path::new("."),
        };
        File::open(parent)?.sync_all()
    }

    /// Keeps the fetched chunks for the next pull. Removes the directory if there are none.
    pub fn leave(self) {
        if self.blob.local_bytes() == 0 {
            return self.remove();
        }
        if let Err(error) = self.blob.flush() {
            tracing::warn!(%error, "the download may have to start again");
        }
    }

    /// Removes the directory while it is locked.
    fn remove(self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::warn!(%error, dir = %self.dir.display(), "could not be removed");
        }
    }
}

/// Creates the directory if needed, with a cache in it, and locks it. The inner error is an error
/// of the cache.
fn locked(dir: &Path) -> io::Result<std::result::Result<(Cache, File), CacheError>> {
    for _ in 0..ATTEMPTS {
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        if !fs::symlink_metadata(dir)?.is_dir() {
            return Err(io::Error::other("another file has this name"));
        }
        // Chunks from an earlier pull may be years old, so they are hashed again.
        let mut options = CacheOptions::default();
        options.recheck = true;
        // Refuses another user's directory before anything in it is opened.
        let cache = match Cache::open(dir, options) {
            Ok(cache) => cache,
            Err(_) if !dir.exists() => continue,
            Err(error) => return Ok(Err(error)),
        };
        let path = dir.join("lock");
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(false).open(&path);
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("another process is fetching into it"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // A process that finished may have removed the directory before this one got the lock.
        let ours = file.metadata()?.ino();
        if fs::symlink_metadata(&path).is_ok_and(|there| there.ino() == ours) {
            return Ok(Ok((cache, file)));
        }
    }
    Err(io::Error::other("other processes keep removing it"))
}

/// Returns the mode of a new file under the user's umask.
fn usual_mode(dir: &Path) -> io::Result<Permissions> {
    let probe = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(dir)?;
    Ok(probe.as_file().metadata()?.permissions())
}

fn unwritable(path: &Path, reason: &str) -> RemoteError {
    RemoteError::Refused {
        place: path.display().to_string(),
        reason: reason.to_owned(),
    }
}
