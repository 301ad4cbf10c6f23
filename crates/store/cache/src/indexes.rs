//! Indexes of archives, stored as files in the directory `indexes` of a cache.
//!
//! The caller names an archive by an identity that changes with its bytes. Each file starts with a
//! digest of the rest, so that a torn or altered file is ignored. The total size is bounded; the
//! least recently used indexes are evicted.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use forerun_io::Unpoisoned;
use tempfile::{NamedTempFile, TempPath};

use crate::layout::{ABANDONED, Layout, list};
use crate::{CacheError, Digest, Result};

const HEAD: &[u8] = b"forerun index 1\n";
/// Longest index, in bytes.
const LIMIT: u64 = 128 << 20;
/// Bytes of all indexes together.
const BUDGET: u64 = 512 << 20;
/// Prefix of files that are being written.
const NEW: &str = ".new-";

/// The file of one index. A process opens it before it enters its sandbox; from then on, it only
/// renames and removes files in [`dir`](Self::dir).
#[derive(Debug)]
pub struct IndexSlot {
    path: PathBuf,
    kept: Option<Vec<u8>>,
    new: Mutex<Option<(File, TempPath)>>,
}

impl IndexSlot {
    /// Creates and returns the directory of indexes in the cache directory `cache`.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn make_dir(cache: &Path) -> Result<PathBuf> {
        Ok(Layout::prepare(cache)?.indexes())
    }

    /// Reads the index of `identity` in the cache directory `cache`. If there is none, makes room
    /// and creates a temporary file for a new one.
    ///
    /// # Errors
    /// [`CacheError::Refused`] for a directory that other users may write to; [`CacheError::Io`].
    pub fn open(cache: &Path, identity: &str) -> Result<Self> {
        let dir = Layout::prepare(cache)?.indexes();
        let path = dir.join(Digest::of(identity.as_bytes()).hex());
        let kept = read(&path);
        let new = match kept {
            Some(_) => None,
            None => {
                evict(&dir)?;
                let new = tempfile::Builder::new().prefix(NEW).tempfile_in(&dir);
                let new = new.map_err(CacheError::io("make a file in", &dir))?;
                Some(NamedTempFile::into_parts(new))
            }
        };
        let new = Mutex::new(new);
        Ok(Self { path, kept, new })
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// Returns the index that [`open`](Self::open) found, if it has at most `most` bytes.
    #[must_use]
    pub fn load(&self, most: u64) -> Option<&[u8]> {
        let kept = self.kept.as_deref()?;
        let len = u64::try_from(kept.len()).ok()?;
        (len <= most).then_some(kept)
    }

    /// Stores an index, unless [`open`](Self::open) found one or this process has stored one.
    ///
    /// # Errors
    /// Any error of writing the file. The index is then not stored.
    pub fn store(&self, index: &[u8]) -> io::Result<()> {
        let Some((mut file, temp)) = self.new.lock().unpoisoned().take() else {
            return Ok(());
        };
        if u64::try_from(index.len()).is_ok_and(|len| len > LIMIT) {
            return Ok(());
        }
        file.write_all(HEAD)?;
        file.write_all(&Digest::of(index).0)?;
        // Not synced: the digest reveals a file that a crash has torn.
        file.write_all(index)?;
        temp.persist(&self.path).map_err(|error| error.error)
    }
}

/// Reads an index; `None` if it is missing or damaged.
fn read(path: &Path) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let mut bytes = Vec::new();
    (&file).take(LIMIT + 64).read_to_end(&mut bytes).ok()?;
    let body = bytes.strip_prefix(HEAD)?;
    let (digest, index) = body.split_at_checked(32)?;
    (Digest::of(index).0 == digest).then_some(())?;
    // Updates the time of last use. If that fails, the index is only evicted earlier.
    let _earlier = file.set_modified(SystemTime::now());
    let index = index.to_vec();
    Some(index)
}

/// Removes the least recently used indexes until a new one fits, and abandoned files.
fn evict(dir: &Path) -> Result<()> {
    let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for path in list(dir)? {
        // Another process may have removed it.
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        files.push((used, metadata.len(), path));
    }
    files.sort();
    let mut total: u64 = files.iter().map(|(_, len, _)| len).sum();
    for (used, len, path) in files {
        let age = SystemTime::now()
            .duration_since(used)
            .unwrap_or(Duration::ZERO);
        let is_new = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(NEW.as_bytes()));
        let goes = if is_new {
            age > ABANDONED
        } else {
            total > BUDGET
        };
        if goes {
            let _is_removed_by_another = fs::remove_file(&path);
            total -= len;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(dir: &Path, identity: &str) -> IndexSlot {
        IndexSlot::open(dir, identity).unwrap()
    }

    #[test]
    fn what_is_stored_is_there_the_next_time() {
        let dir = forerun_testkit::temp_dir("indexes");
        let first = slot(dir.path(), "a");
        assert_eq!(first.load(100), None);
        first.store(b"index").unwrap();
        first.store(b"another").unwrap();
        let second = slot(dir.path(), "a");
        assert_eq!(second.load(100), Some(&b"index"[..]));
        assert_eq!(second.load(4), None);
        assert_eq!(slot(dir.path(), "b").load(100), None);
        // Only the stored index has a name.
        assert_eq!(fs::read_dir(second.dir()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_was_altered_is_no_index_and_is_replaced() {
        let dir = forerun_testkit::temp_dir("indexes");
        slot(dir.path(), "a").store(b"index").unwrap();
        let path = slot(dir.path(), "a").path;
        let whole = fs::read(&path).unwrap();
        for place in 0..whole.len() {
            let mut altered = whole.clone();
            altered[place] ^= 1;
            fs::write(&path, altered).unwrap();
            assert_eq!(slot(dir.path(), "a").load(100), None, "byte {place}");
        }
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            assert_eq!(slot(dir.path(), "a").load(100), None, "cut at {len}");
        }
        slot(dir.path(), "a").store(b"new").unwrap();
        assert_eq!(slot(dir.path(), "a").load(100), Some(&b"new"[..]));
    }

    #[test]
    fn the_indexes_used_longest_ago_go() {
        let dir = forerun_testkit::temp_dir("indexes");
        let made = slot(dir.path(), "old");
        made.store(b"old").unwrap();
        let dir_of_files = made.dir().to_path_buf();
        let large = File::create(dir_of_files.join("large")).unwrap();
        large.set_len(BUDGET).unwrap();
        let old = File::open(&made.path).unwrap();
        old.set_modified(SystemTime::now() - Duration::from_secs(60))
            .unwrap();
        let abandoned = File::create(dir_of_files.join(".new-x")).unwrap();
        abandoned.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        evict(&dir_of_files).unwrap();
        assert!(!made.path.exists() && !dir_of_files.join(".new-x").exists());
        assert!(dir_of_files.join("large").exists());
    }
}
