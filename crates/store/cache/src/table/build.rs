//! Builds a chunk table, either from bytes as they arrive, or from a source on all cores.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use forerun_io::{ReadAt, Unpoisoned, u64_from, usize_from};
use forerun_sys::memory_limit::MemoryLimit;
use forerun_sys::threads;

use super::descriptor::file_digest;
use super::padded_digest;
use crate::Digest;
use crate::geometry::{BadGeometry, Geometry};

/// Bytes that a thread reads and hashes at a time.
const STEP: u64 = 4 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkTable {
    geometry: Geometry,
    chunks: Vec<Digest>,
    bytes: Vec<u8>,
    root: Digest,
}

impl ChunkTable {
    /// Builds a table from its leaves, one digest for each chunk.
    fn of_chunks(geometry: Geometry, chunks: Vec<Digest>) -> Self {
        let block = usize_from(geometry.size());
        let mut levels: Vec<Vec<u8>> = Vec::new();
        let mut below = chunks.clone();
        while below.len() > 1 {
            let arity = usize_from(geometry.arity());
            let mut level = Vec::new();
            for digests in below.chunks(arity) {
                let start = level.len();
                digests.iter().for_each(|digest| level.extend(digest.0));
                level.resize(start + block, 0);
            }
            below = level.chunks(block).map(Digest::of).collect();
            levels.push(level);
        }
        let top = below.first().copied().unwrap_or(Digest([0; 32]));
        let bytes = match chunks.as_slice() {
            [only] => only.0.to_vec(),
            _ => levels.into_iter().rev().flatten().collect(),
        };
        Self {
            geometry,
            chunks,
            bytes,
            root: file_digest(&geometry, &top),
        }
    }

    /// Builds a table from chunk digests as [`digests`](Self::digests) returns them. Returns `None`
    /// if their number is wrong.
    #[must_use]
    pub fn of_digests(geometry: Geometry, digests: &[u8]) -> Option<Self> {
        let (chunks, rest) = digests.as_chunks::<32>();
        let is_whole = rest.is_empty() && u64_from(chunks.len()) == geometry.chunks();
        is_whole.then(|| Self::of_chunks(geometry, chunks.iter().copied().map(Digest).collect()))
    }

    /// Builds the table of `source`. One thread for each CPU reads and hashes, or fewer if memory
    /// is scarce.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for an unsupported length or chunk size; any error of the
    /// source.
    pub fn of_source(source: &dyn ReadAt, chunk_size: u32) -> io::Result<Self> {
        let geometry = Geometry::new(source.len(), chunk_size)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        // Some MiB at a time, so that requests stay large.
        let step = STEP / geometry.size();
        let next = AtomicU64::new(0);
        let digests = Mutex::new(vec![Digest([0; 32]); usize_from(geometry.chunks())]);
        let work = || -> io::Result<()> {
            let mut buffer = Vec::new();
            loop {
                let first = next.fetch_add(step, Ordering::Relaxed);
                if first >= geometry.chunks() {
                    return Ok(());
                }
                let range = geometry.bytes_of(&(first..first + step));
                buffer.resize(usize_from(range.end - range.start), 0);
                source.read_exact_at(range.start, &mut buffer)?;
                let size = usize_from(geometry.size());
                let hash = |bytes| padded_digest(&geometry, bytes);
                let found: Vec<_> = buffer.chunks(size).map(hash).collect();
                let mut digests = digests.lock().unpoisoned();
                for (slot, digest) in digests.iter_mut().skip(usize_from(first)).zip(found) {
                    *slot = digest;
                }
            }
        };
        let most = MemoryLimit::of_process().threads(STEP).min(16);
        std::thread::scope(|scope| {
            let start = |_| threads::spawn_scoped(scope, "table-hash", work);
            let started = (0..most).map(start).collect::<io::Result<Vec<_>>>()?;
            started.into_iter().try_for_each(|thread| {
                let broken = |_| Err(io::Error::other("a hashing thread panicked"));
                thread.join().unwrap_or_else(broken)
            })
        })?;
        let digests = digests.into_inner().unpoisoned();
        Ok(Self::of_chunks(geometry, digests))
    }

    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the root: the fs-verity digest of the image with the chunk size as block size.
    #[must_use]
    pub const fn root(&self) -> Digest {
        self.root
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the table's bytes without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the chunk digests as consecutive bytes.
    #[must_use]
    pub fn digests(&self) -> Vec<u8> {
        self.chunks.iter().flat_map(|digest| digest.0).collect()
    }

    /// Returns the chunk digests. The last chunk is padded with zeros before hashing.
    #[must_use]
    pub fn chunk_digests(&self) -> &[Digest] {
        &self.chunks
    }
}

/// Builds a table from bytes as they arrive. The total length need not be known in advance.
#[derive(Debug)]
pub struct TableBuilder {
    chunk_size: u32,
    len: u64,
    partial: Vec<u8>,
    chunks: Vec<Digest>,
}

impl TableBuilder {
    /// Creates a builder for this chunk size.
    ///
    /// # Errors
    /// [`BadGeometry::ChunkSize`].
    pub fn new(chunk_size: u32) -> Result<Self, BadGeometry> {
        Geometry::new(0, chunk_size)?;
        Ok(Self {
            chunk_size,
            len: 0,
            partial: Vec::new(),
            chunks: Vec::new(),
        })
    }

    /// Adds the next bytes of the image.
    ///
    /// # Errors
    /// [`BadGeometry::TooLong`].
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), BadGeometry> {
        self.len += u64_from(bytes.len());
        let geometry = Geometry::new(self.len, self.chunk_size)?;
        let size = usize_from(geometry.size());
        if !self.partial.is_empty() {
            let (head, rest) = bytes.split_at(bytes.len().min(size - self.partial.len()));
            self.partial.extend(head);
            bytes = rest;
            if self.partial.len() == size {
                self.chunks.push(Digest::of(&self.partial));
                self.partial.clear();
            }
        }
        let whole = bytes.chunks_exact(size);
        self.partial.extend(whole.remainder());
        self.chunks.extend(whole.map(Digest::of));
        Ok(())
    }

    /// Returns the table of all pushed bytes.
    ///
    /// # Errors
    /// The [`BadGeometry`] that `push` returned.
    pub fn finish(mut self) -> Result<ChunkTable, BadGeometry> {
        let geometry = Geometry::new(self.len, self.chunk_size)?;
        if !self.partial.is_empty() {
            self.chunks.push(padded_digest(&geometry, &self.partial));
        }
        Ok(ChunkTable::of_chunks(geometry, self.chunks))
    }
}
