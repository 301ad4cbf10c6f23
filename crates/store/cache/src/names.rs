//! Resolved references, stored so that a cached image can be opened while no server is reachable.
//!
//! Each reference has one small file, which is replaced as a whole and holds a digest of itself.
//! The facts about an image are opaque bytes here: the caller encodes and checks them. A record is
//! valid only while the blob that it names is in the cache; length and chunk size come from that
//! blob.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::cache::Cache;
use crate::geometry::Geometry;
use crate::info::Info;
use crate::layout::{ABANDONED, Layout, list};
use crate::lock::open_existing;
use crate::opening::whole;
use crate::{CacheError, Digest, Result, store};

const HEAD: &str = "forerun cached name 1";
/// Longest record. An image with the maximum number of parts uses a quarter of it.
const LIMIT: usize = 2 << 20;

/// What a reference was last resolved to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recalled {
    pub at: SystemTime,
    /// Identity of a blob that is in the cache.
    pub identity: String,
    pub geometry: Geometry,
    /// The facts that the caller passed to `remember`.
    pub facts: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
struct NameRecord<'a> {
    name: Digest,
    at: u64,
    identity: &'a str,
    facts: &'a [u8],
}

impl Cache {
    /// Records that `name` was just resolved to the blob `identity`, with `facts` about it. The
    /// blob must be in this cache. Replaces an earlier record of the name.
    ///
    /// # Errors
    /// [`CacheError::Spec`] for facts of more than 2 MiB; [`CacheError::Io`].
    pub fn remember(&self, name: &str, identity: &str, facts: &[u8]) -> Result<()> {
        let layout = &self.shared.layout;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let name = Digest::of(name.as_bytes());
        let text = encode(&NameRecord {
            name,
            at: since.map_or(0, |since| since.as_secs()),
            identity,
            facts,
        });
        if text.len() > LIMIT || identity.contains('\n') {
            return Err(CacheError::Spec {
                identity: identity.chars().take(100).collect(),
                reason: "too much is to be remembered of it",
            });
        }
        store::replace(&layout.names().join(name.hex()), &text)
    }

    /// Returns the last resolution of `name` if its blob is in the cache.
    #[must_use]
    pub fn recall(&self, name: &str) -> Option<Recalled> {
        let layout = &self.shared.layout;
        let name = Digest::of(name.as_bytes());
        let text = read(&layout.names().join(name.hex()))?;
        let record = decode(&text).filter(|record| record.name == name)?;
        let info = Info::read(&layout.blob(record.identity).join("info"))?;
        (info.identity == record.identity).then(|| Recalled {
            at: UNIX_EPOCH + Duration::from_secs(record.at),
            identity: info.identity,
            geometry: info.geometry,
            facts: record.facts.to_vec(),
        })
    }

    /// Returns whether the whole blob was found to have this digest, and no chunk was dropped
    /// since.
    #[must_use]
    pub fn is_whole(&self, identity: &str, digest: Digest) -> bool {
        whole(&self.shared.layout.blob(identity)) == Some(digest)
    }
}

/// Removes the records of names whose blobs are gone.
pub(crate) fn forget_gone(layout: &Layout) {
    for path in list(&layout.names()).unwrap_or_default() {
        let text = read(&path);
        let blob = text.as_deref().and_then(decode);
        if blob.is_some_and(|record| layout.blob(record.identity).exists()) || is_new(&path) {
            continue;
        }
        if let Err(error) = fs::remove_file(&path) {
            tracing::debug!(%error, "a name of an image that is gone could not be forgotten");
        }
    }
}

/// Returns whether the file may still be being written. Files with a final name are complete.
fn is_new(path: &Path) -> bool {
    let is_temporary = path.file_name().is_some_and(|name| name.len() != 64);
    let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
    let age = changed.ok().and_then(|then| then.elapsed().ok());
    is_temporary && age.is_none_or(|age| age < ABANDONED)
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let limit = forerun_io::u64_from(LIMIT) + 1;
    let file = open_existing(path).ok()?;
    file.take(limit).read_to_end(&mut text).ok()?;
    (text.len() <= LIMIT).then_some(text)
}

fn encode(record: &NameRecord<'_>) -> Vec<u8> {
    let NameRecord {
        name,
        at,
        identity,
        facts,
    } = record;
    let rest = format!("name: {name}\nat: {at}\nidentity: {identity}\n\n");
    sealed(&[rest.as_bytes(), facts].concat())
}

fn decode(text: &[u8]) -> Option<NameRecord<'_>> {
    let mut rest = text;
    let mut line = |start: &str| {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let (line, after) = (rest.get(..end)?, rest.get(end + 1..)?);
        rest = after;
        Some((std::str::from_utf8(line).ok()?.strip_prefix(start)?, after))
    };
    line(HEAD).filter(|(more, _)| more.is_empty())?;
    let (checksum, summed) = line("checksum: ")?;
    if checksum.parse() != Ok(Digest::of(summed)) {
        return None;
    }
    let name = line("name: ")?.0.parse().ok()?;
    let at = line("at: ")?.0.parse().ok()?;
    let (identity, _) = line("identity: ")?;
    let (_, facts) = line("").filter(|(empty, _)| empty.is_empty())?;
    // The limit is later than any real clock, and small enough to add to 1970.
    (at < 1 << 40).then_some(NameRecord {
        name,
        at,
        identity,
        facts,
    })
}

/// Returns a digest of `bytes`, followed by `bytes`.
pub(crate) fn sealed(bytes: &[u8]) -> Vec<u8> {
    let head = format!("{HEAD}\nchecksum: {}\n", Digest::of(bytes));
    [head.as_bytes(), bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlobSpec, CacheOptions, TableTrust};

    fn spec(identity: &str) -> BlobSpec {
        BlobSpec {
            identity: identity.to_string(),
            len: 100,
            chunk_size: 4096,
            table: None,
            trust: TableTrust::default(),
            temporary: false,
            label: String::new(),
        }
    }

    #[test]
    fn what_is_remembered_is_recalled_while_its_blob_is_there() {
        let dir = forerun_testkit::temp_dir("names");
        let cache = Cache::open(dir.path(), CacheOptions::default()).unwrap();
        cache.remember("n", "x", b"gone").unwrap();
        assert_eq!(cache.recall("n"), None, "no such blob");
        for identity in ["x", "y"] {
            drop(cache.blob(spec(identity)).unwrap());
            cache.remember("n", identity, b"one\n\ntwo\xff").unwrap();
            cache.remember("other", identity, b"").unwrap();
            let recalled = cache.recall("n").unwrap();
            assert_eq!(
                (&*recalled.identity, recalled.geometry.len()),
                (identity, 100)
            );
            assert_eq!(recalled.facts, b"one\n\ntwo\xff");
            assert!(recalled.at.elapsed().unwrap() < Duration::from_secs(100));
        }
        assert_eq!(cache.recall("x"), None);
        assert!(cache.remember("n", "y", &[0; LIMIT]).is_err());
        // A record in the file of another name is ignored.
        let path = |name: &str| {
            dir.path()
                .join("v1/names")
                .join(Digest::of(name.as_bytes()).hex())
        };
        fs::copy(path("n"), path("z")).unwrap();
        assert_eq!(cache.recall("z"), None);
        cache.shrink_to(0).unwrap();
        assert_eq!(cache.recall("n"), None);
        assert_eq!(
            fs::read_dir(dir.path().join("v1/names")).unwrap().count(),
            0
        );
    }

    #[test]
    fn records_that_are_torn_do_not_count() {
        let record = NameRecord {
            name: Digest([1; 32]),
            at: 7,
            identity: "url x version y",
            facts: b"{}",
        };
        let text = encode(&record);
        assert_eq!(decode(&text), Some(record));
        for at in 0..text.len() {
            assert_eq!(decode(&text[..at]), None, "{at}");
            let mut bad = text.clone();
            bad[at] ^= 0x10;
            assert_eq!(decode(&bad), None, "{at}");
        }
        let late = NameRecord {
            name: Digest([1; 32]),
            at: u64::MAX,
            identity: "x",
            facts: b"",
        };
        assert_eq!(decode(&encode(&late)), None);
    }
}
