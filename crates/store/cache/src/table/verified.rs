//! A chunk table whose blocks are verified against the root before use.
//!
//! A hash block is read when one of its digests is first needed, verified against the block above,
//! and cached in memory of bounded size. It is also stored in a local file if there is one. Blocks
//! from that file are verified again, because a crash may have torn it.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use forerun_io::{BlobId, BlockCache, BlockKey, ReadAt, usize_from};
use forerun_sys::memory_limit::MemoryLimit;

use super::descriptor::file_digest;
use super::padded_digest;
use crate::geometry::{DIGEST_LEN, Geometry, Level};
use crate::{CacheError, Digest};

/// Bytes of verified hash blocks cached for one table. With chunks of 64 KiB, they cover 32 GiB.
const KEPT: u64 = 16 << 20;

/// A loaded hash block. All threads that waited for it share its error.
type HashBlock = Result<Arc<[u8]>, Arc<io::Error>>;

/// Chunk digests that are verified against a root.
pub struct VerifiedTable {
    geometry: Geometry,
    root: Digest,
    levels: Vec<Level>,
    source: Arc<dyn ReadAt>,
    local: OnceLock<File>,
    blocks: BlockCache<Arc<io::Error>>,
}

impl fmt::Debug for VerifiedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedTable")
            .field("geometry", &self.geometry)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl VerifiedTable {
    /// Creates the table of an image. `source` holds the table's bytes, and `root` is its expected
    /// root. Reads nothing yet.
    ///
    /// # Errors
    /// [`CacheError::TableLength`] if the table has the wrong length.
    pub fn new(
        source: Arc<dyn ReadAt>,
        geometry: Geometry,
        root: Digest,
    ) -> Result<Self, CacheError> {
        let (len, expected) = (source.len(), geometry.table_len());
        if len != expected {
            return Err(CacheError::TableLength { len, expected });
        }
        // The cache rejects entries heavier than a shard, so leave room for some blocks in each
        // shard.
        let kept = MemoryLimit::of_process().eighth(KEPT);
        let budget = kept.max(geometry.size() * 16);
        Ok(Self {
            geometry,
            root,
            levels: geometry.levels(),
            source,
            local: OnceLock::new(),
            blocks: BlockCache::new(budget, geometry.size()),
        })
    }

    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the root: the fs-verity digest of the image.
    #[must_use]
    pub const fn root(&self) -> Digest {
        self.root
    }

    /// Also stores verified hash blocks in `file`, and reads them from there first. Only the first
    /// call has an effect.
    pub fn keep_in(&self, file: File) {
        let _first_counts = self.local.set(file);
    }

    /// Returns the digest of a chunk; the last one is padded with zeros.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a chunk past the end; [`io::ErrorKind::InvalidData`]
    /// with a [`CacheError::WrongTable`] if the table does not match the root; any error of the
    /// source.
    pub fn digest(&self, chunk: u64) -> io::Result<Digest> {
        if chunk >= self.geometry.chunks() {
            let error = CacheError::NoChunk {
                chunk,
                chunks: self.geometry.chunks(),
            };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        if self.levels.is_empty() {
            let mut only = [0; 32];
            let read = |out: &mut [u8]| self.source.read_exact_at(0, out);
            let block = self.block_at(BlockKey::at(BlobId::IMAGE, 0), &mut only, read, |bytes| {
                let digest = <[u8; 32]>::try_from(bytes).map(Digest);
                digest.is_ok_and(|digest| file_digest(&self.geometry, &digest) == self.root)
            });
            return entry(&block.map_err(|error| again(&error))?, 0);
        }
        self.digest_in(0, chunk)
    }

    /// Compares `bytes` with the digest of `chunk`.
    ///
    /// # Errors
    /// [`CacheError::WrongDigest`] if they differ; [`CacheError::Table`] if the table has no digest
    /// for the chunk.
    pub fn verify(&self, chunk: u64, bytes: &[u8]) -> Result<(), CacheError> {
        self.verify_digest(chunk, &padded_digest(&self.geometry, bytes))
    }

    /// Like [`verify`](Self::verify), for bytes that the caller has already hashed.
    pub(crate) fn verify_digest(&self, chunk: u64, found: &Digest) -> Result<(), CacheError> {
        let expected = self.digest(chunk).map_err(CacheError::table)?;
        if expected == *found {
            return Ok(());
        }
        Err(CacheError::WrongDigest {
            chunk,
            expected,
            found: *found,
        })
    }

    /// Returns a digest of a level; level 0 has the leaves.
    fn digest_in(&self, level: usize, index: u64) -> io::Result<Digest> {
        let number = index / self.geometry.arity();
        let block = self.block(level, number).map_err(|error| again(&error))?;
        entry(&block, index % self.geometry.arity())
    }

    /// Returns a hash block, verified against the block above.
    fn block(&self, level: usize, number: u64) -> HashBlock {
        let place = self.levels.get(level).ok_or_else(behind)?;
        let offset = (place.start + number) * self.geometry.size();
        let key = BlockKey::at(BlobId::IMAGE, offset);
        if let Some(block) = self.blocks.get(key) {
            return Ok(block);
        }
        // Get the expected digest before the load: a load must not wait for another one on the same
        // thread.
        let top = level + 1 == self.levels.len();
        let expected = if top {
            None
        } else {
            Some(self.digest_in(level + 1, number).map_err(Arc::new)?)
        };
        let mut buffer = vec![0; usize_from(self.geometry.size())];
        let read = |out: &mut [u8]| self.source.read_exact_at(offset, out);
        self.block_at(key, &mut buffer, read, |bytes| {
            let found = Digest::of(bytes);
            match expected {
                Some(expected) => expected == found,
                None => file_digest(&self.geometry, &found) == self.root,
            }
        })
    }

    /// Returns a block of the table from memory, the local file or the source. Concurrent callers
    /// share one load.
    fn block_at(
        &self,
        key: BlockKey,
        buffer: &mut [u8],
        read: impl Fn(&mut [u8]) -> io::Result<()>,
        right: impl Fn(&[u8]) -> bool,
    ) -> HashBlock {
        let load = || -> HashBlock {
            let offset = key.offset;
            if let Some(file) = self.local.get()
                && file.read_exact_at(buffer, offset).is_ok()
                && right(buffer)
            {
                return Ok((&*buffer).into());
            }
            read(buffer)?;
            if !right(buffer) {
                let error = CacheError::WrongTable {
                    offset,
                    root: self.root,
                };
                return Err(Arc::new(io::Error::new(io::ErrorKind::InvalidData, error)));
            }
            if let Some(file) = self.local.get()
                && let Err(error) = file.write_all_at(buffer, offset)
            {
                tracing::debug!(%error, offset, "a block of a chunk table could not be kept");
            }
            Ok((&*buffer).into())
        };
        self.blocks.get_or_load(key, load).map(|(block, _)| block)
    }
}

fn entry(block: &[u8], index: u64) -> io::Result<Digest> {
    let at = usize_from(index * DIGEST_LEN);
    let bytes = block.get(at..).and_then(|rest| rest.first_chunk::<32>());
    bytes
        .copied()
        .map(Digest)
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn behind() -> Arc<io::Error> {
    Arc::new(io::ErrorKind::InvalidInput.into())
}

/// Copies a shared error: kind, number and text.
fn again(error: &Arc<io::Error>) -> io::Error {
    if let Some(number) = error.raw_os_error() {
        return io::Error::from_raw_os_error(number);
    }
    match error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<CacheError>())
    {
        Some(CacheError::WrongTable { offset, root }) => {
            let (offset, root) = (*offset, *root);
            io::Error::new(error.kind(), CacheError::WrongTable { offset, root })
        }
        _ => io::Error::new(error.kind(), SharedError(Arc::clone(error))),
    }
}

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct SharedError(Arc<io::Error>);
