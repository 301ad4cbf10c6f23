//! Digests of layers on disk that were computed earlier, so that an unchanged file is not hashed
//! again.
//!
//! They are stored like indexes of archives, and evicted with them. A file is identified by its
//! path, inode, length and times, as for an index. A caller that does not trust this hashes the
//! file.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use forerun_cache::{Digest, IndexSlot};

use crate::kept::identity_of_file;

/// The file that holds a layer: the layer itself, or an archive with it.
#[derive(Clone, Debug)]
pub struct LayerPlace {
    path: PathBuf,
    /// Identity of the file when it was opened, and the path of the layer in it.
    identity: String,
    inner: String,
}

impl LayerPlace {
    /// Describes the layer at `inner` of the file at `path`, which has this metadata.
    pub fn new(path: &Path, metadata: &Metadata, inner: &str) -> Self {
        Self {
            path: path.to_path_buf(),
            identity: identity(path, metadata, inner),
            inner: inner.to_string(),
        }
    }

    fn is_unchanged(&self) -> bool {
        let now = self.path.metadata();
        now.is_ok_and(|now| identity(&self.path, &now, &self.inner) == self.identity)
    }
}

fn identity(path: &Path, metadata: &Metadata, inner: &str) -> String {
    format!(
        "digest of {inner:?} in {}",
        identity_of_file(path, metadata)
    )
}

/// Checks that a layer has this digest. Uses the digest stored in the cache directory `cache` if
/// the file is unchanged. Otherwise calls `hash`, and stores the digest if it matches. Returns the
/// digest found if it differs.
///
/// # Errors
/// The errors of `hash`.
pub fn has_digest(
    expected: Digest,
    place: &LayerPlace,
    cache: Option<&Path>,
    hash: impl FnOnce() -> io::Result<Digest>,
) -> io::Result<Result<(), Digest>> {
    let slot = cache.and_then(|cache| {
        let slot = IndexSlot::open(cache, &place.identity);
        slot.inspect_err(|error| tracing::debug!(%error, "no digest of the layer is kept"))
            .ok()
    });
    let known = slot.as_ref().and_then(|slot| slot.load(128));
    if known == Some(expected.to_string().as_bytes()) {
        return Ok(Ok(()));
    }
    let digest = hash()?;
    if digest != expected {
        return Ok(Err(digest));
    }
    if let Some(slot) = slot.filter(|_| place.is_unchanged())
        && let Err(error) = slot.store(expected.to_string().as_bytes())
    {
        tracing::debug!(%error, "the digest of the layer could not be kept");
    }
    Ok(Ok(()))
}

/// Returns whether the cache knows that a layer has this digest. Does not read the layer.
pub fn is_known(expected: Digest, place: &LayerPlace, cache: Option<&Path>) -> bool {
    let slot = cache.and_then(|cache| IndexSlot::open(cache, &place.identity).ok());
    let known = slot.as_ref().and_then(|slot| slot.load(128));
    known == Some(expected.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_hashed_once_and_again_when_it_has_changed() {
        let dir = forerun_testkit::temp_dir("known-digests");
        let (cache, path) = (dir.path().join("cache"), dir.path().join("layer"));
        let hashed = Cell::new(0);
        let check = |expected: &[u8], cache: Option<&Path>| {
            let place = LayerPlace::new(&path, &path.metadata().unwrap(), "");
            let hash = || {
                hashed.set(hashed.get() + 1);
                Ok(Digest::of(&fs::read(&path)?))
            };
            has_digest(Digest::of(expected), &place, cache, hash).unwrap()
        };
        fs::write(&path, "bytes").unwrap();
        for _ in 0..3 {
            assert_eq!(check(b"bytes", Some(&cache)), Ok(()));
        }
        assert_eq!(hashed.get(), 1);
        assert_eq!(check(b"bytes", None), Ok(()), "without a cache");
        assert_eq!(hashed.get(), 2);
        // Other bytes with the same length and modification time.
        let modified = path.metadata().unwrap().modified().unwrap();
        fs::write(&path, "BYTES").unwrap();
        fs::File::open(&path)
            .unwrap()
            .set_modified(modified)
            .unwrap();
        assert_eq!(check(b"bytes", Some(&cache)), Err(Digest::of(b"BYTES")));
        assert_eq!(hashed.get(), 3);
        // Only one digest is stored, so a document that names another one has the file hashed.
        assert_eq!(check(b"BYTES", Some(&cache)), Ok(()));
        assert_eq!(check(b"other", Some(&cache)), Err(Digest::of(b"BYTES")));
        assert_eq!(hashed.get(), 5);
    }

    #[test]
    fn a_file_that_changes_while_it_is_hashed_is_not_known() {
        let dir = forerun_testkit::temp_dir("known-digests");
        let (cache, path) = (dir.path().join("cache"), dir.path().join("layer"));
        fs::write(&path, "bytes").unwrap();
        let place = LayerPlace::new(&path, &path.metadata().unwrap(), "");
        let digest = Digest::of(b"bytes");
        let hash = || {
            fs::write(&path, "longer bytes")?;
            Ok(digest)
        };
        assert_eq!(
            has_digest(digest, &place, Some(&cache), hash).unwrap(),
            Ok(())
        );
        let again = has_digest(digest, &place, Some(&cache), || Ok(Digest::of(b"")));
        assert_eq!(again.unwrap(), Err(Digest::of(b"")));
    }
}
