//! An index of the chunks of all blobs by the first bytes of their digests.
//!
//! Its size is bounded; chunks of the most recently used blobs are indexed first. It may be wrong,
//! so every chunk found through it is verified.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use forerun_io::u64_from;

use crate::Digest;
use crate::info::Info;
use crate::lock::open_existing;
use crate::records::{Record, RecordHash, Records};

/// Most chunks in the index: 32 GiB of images with chunks of 64 KiB, in about 25 MiB of memory.
const ENTRIES: usize = 1 << 19;
const LOOKED_AT: u64 = 8 << 20;
/// Age at which an index is rebuilt, because other processes may have stored chunks.
const STALE: Duration = Duration::from_secs(60);

/// The locations of chunks in other blobs, by chunk size.
#[derive(Debug, Default)]
pub(crate) struct Index {
    sizes: HashMap<u32, OfSize>,
}

#[derive(Debug)]
struct OfSize {
    built: Instant,
    dirs: Vec<PathBuf>,
    /// Index into `dirs`, and the chunk number there.
    places: HashMap<Record, (usize, u64)>,
}

impl Index {
    /// Looks up chunks of one size. Returns the directory of a blob and the chunk's number there
    /// for each chunk found. Builds the index for that size from the blobs in `dirs`, unless a
    /// fresh one exists.
    pub(crate) fn places(
        &mut self,
        size: u32,
        dirs: impl FnOnce() -> Vec<PathBuf>,
        wanted: &[(u64, Digest)],
    ) -> Vec<Option<(PathBuf, u64)>> {
        let known = self.sizes.get(&size);
        if known.is_none_or(|known| known.built.elapsed() > STALE) {
            self.sizes.insert(size, OfSize::build(dirs(), size));
        }
        let known = self.sizes.get(&size);
        let place = |digest: &Digest| {
            let known = known?;
            let (dir, chunk) = known.places.get(&Record::of(digest))?;
            let dir = known.dirs.get(*dir)?;
            Some((dir.clone(), *chunk))
        };
        wanted.iter().map(|(_, digest)| place(digest)).collect()
    }

    /// Frees indexes that are too old to be used. With `all`, frees every index.
    pub(crate) fn forget(&mut self, all: bool) {
        self.sizes
            .retain(|_, index| !all && index.built.elapsed() <= STALE);
    }
}

impl OfSize {
    /// Reads the records of all blobs with that chunk size.
    fn build(dirs: Vec<PathBuf>, size: u32) -> Self {
        let mut blobs: Vec<_> = dirs
            .into_iter()
            .filter_map(|dir| {
                let info = Info::read(&dir.join("info"))?;
                let used = dir
                    .join("use")
                    .metadata()
                    .and_then(|use_| use_.modified())
                    .ok()?;
                let is_of_size = info.geometry.chunk_size() == size;
                let has_digests = info.records == RecordHash::Sha256;
                (is_of_size && has_digests).then_some((used, info.geometry, dir))
            })
            .collect();
        blobs.sort_by_key(|(used, ..)| std::cmp::Reverse(*used));
        let mut this = Self {
            built: Instant::now(),
            dirs: Vec::new(),
            places: HashMap::new(),
        };
        let mut looked_at = 0_u64;
        for (_, geometry, dir) in blobs {
            let Ok(file) = open_existing(&dir.join("records")) else {
                continue;
            };
            let number = this.dirs.len();
            this.dirs.push(dir);
            let places = &mut this.places;
            let note = |chunk, record| {
                if places.len() < ENTRIES {
                    places.entry(record).or_insert((number, chunk));
                }
            };
            let chunks = geometry.chunks().min(LOOKED_AT - looked_at);
            if let Err(error) = Records::new(file).each(0..chunks, note) {
                tracing::debug!(%error, "records of another image could not be read");
            }
            looked_at += chunks;
            if looked_at >= LOOKED_AT || u64_from(this.places.len()) >= u64_from(ENTRIES) {
                break;
            }
        }
        this
    }
}
