//! Chunks that need no fetching: chunks of zeros, and chunks that this or another blob in the cache
//! holds.
//!
//! A blob with digests has a record for each chunk, with the first bytes of its digest. The first
//! lookup reads the records into an index of bounded size, most recently used blobs first. A chunk
//! is copied inside the kernel, which shares disk blocks if the filesystem can. Then the copy is
//! read back and verified like a fetched chunk: neither index nor records are trusted.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use forerun_io::{Unpoisoned, usize_from};

use crate::blob::CachedBlob;
use crate::geometry::Geometry;
use crate::lock::open_existing;
use crate::table::padded_digest;
use crate::{CacheError, Digest, Result, runs};

impl CachedBlob {
    /// Copies each of `chunks` that another blob has, and adds chunks of zeros without a copy.
    /// Call this for claimed chunks before fetching them. Returns the chunks that are now present;
    /// none if the blob has no table.
    ///
    /// # Errors
    /// [`CacheError::Io`] if the cache cannot be written. If another blob's chunk or a part of the
    /// table cannot be read, the chunk is left for the caller to fetch.
    pub fn adopt(&self, chunks: &[Range<u64>]) -> Result<Vec<Range<u64>>> {
        let mut adopted = Vec::new();
        let Some(table) = &self.table else {
            return Ok(adopted);
        };
        let mut wanted = Vec::new();
        'table: for run in chunks {
            for chunk in self.present.runs(run.clone(), false).into_iter().flatten() {
                match table.digest(chunk) {
                    Ok(digest) => wanted.push((chunk, digest)),
                    Err(error) => {
                        tracing::debug!(%error, chunk, "adopting nothing behind this chunk");
                        break 'table;
                    }
                }
            }
        }
        let zeros = zero_digest(&self.geometry());
        let mut files = HashMap::new();
        for ((chunk, digest), place) in wanted.iter().zip(self.places(&wanted)) {
            let copied = match place {
                // The data file has a hole there unless the chunk was written before; the check
                // below finds out.
                _ if *digest == zeros => true,
                Some((dir, at)) => {
                    let file = files.entry(dir).or_insert_with_key(|dir| open_data(dir));
                    file.as_ref()
                        .is_some_and(|file| self.copy(file, at, *chunk))
                }
                None => false,
            };
            if copied && self.take_if_right(*chunk, digest)? {
                runs::push(&mut adopted, *chunk..*chunk + 1);
            }
        }
        Ok(adopted)
    }

    /// Marks the chunk as stored if the data file holds the right bytes. Returns whether it does.
    fn take_if_right(&self, chunk: u64, digest: &Digest) -> Result<bool> {
        let failed = CacheError::io("read", &self.files.dir);
        let found = self.hashed_on_disk(chunk).map_err(&failed)?;
        if found.digest.as_ref() != Some(digest) {
            return Ok(false);
        }
        self.files
            .records
            .write(chunk, &[found.record])
            .map_err(&failed)?;
        self.arrived(&(chunk..chunk + 1), self.geometry().len_of(chunk));
        Ok(true)
    }

    /// Looks up chunks in the index. Returns the other blob's directory and chunk number for each.
    fn places(&self, wanted: &[(u64, Digest)]) -> Vec<Option<(PathBuf, u64)>> {
        let size = self.geometry().chunk_size();
        let mut index = self.cache.index.lock().unpoisoned();
        let dirs = || self.cache.layout.blob_dirs().unwrap_or_default();
        index.places(size, dirs, wanted)
    }

    /// Copies a chunk from another data file into this one. Returns false if that fails; the caller
    /// then fetches the chunk.
    fn copy(&self, from: &File, at: u64, chunk: u64) -> bool {
        let place = self.geometry().bytes_of(&(chunk..chunk + 1));
        let Some(mut from_offset) = at.checked_mul(self.geometry().size()) else {
            return false;
        };
        let mut to_offset = place.start;
        while to_offset < place.end {
            let left = usize_from(place.end - to_offset);
            let (source, target) = (Some(&mut from_offset), Some(&mut to_offset));
            match rustix::fs::copy_file_range(from, source, &self.files.data, target, left) {
                // The other image ends here. The rest of the chunk may be zeros.
                Ok(0) => break,
                Ok(_) => {}
                // Some filesystems do not support `copy_file_range`. The offsets are at the end of
                // the last copy.
                Err(_) => return self.copy_through_memory(from, from_offset, to_offset..place.end),
            }
        }
        true
    }

    fn copy_through_memory(&self, from: &File, offset: u64, to: Range<u64>) -> bool {
        let mut bytes = vec![0; usize_from(to.end - to.start)];
        let got = crate::records::read_up_to(from, &mut bytes, offset).unwrap_or(0);
        let bytes = bytes.get(..got).unwrap_or_default();
        !bytes.is_empty() && self.files.data.write_all_at(bytes, to.start).is_ok()
    }
}

fn open_data(dir: &Path) -> Option<File> {
    open_existing(&dir.join("data")).ok()
}

fn zero_digest(geometry: &Geometry) -> Digest {
    padded_digest(geometry, &[])
}
