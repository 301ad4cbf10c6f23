//! Hashes of a chunk, for comparison with its table or record.

use std::io;
use std::os::unix::fs::FileExt;

use forerun_io::usize_from;

use crate::blob::CachedBlob;
use crate::records::{Record, RecordHash};
use crate::table::padded_digest;
use crate::{Digest, Result};

pub(crate) struct Hashed {
    pub(crate) record: Record,
    /// The digest for the table; `None` if neither table nor record needs it.
    pub(crate) digest: Option<Digest>,
}

impl CachedBlob {
    pub(crate) fn hashed(&self, bytes: &[u8]) -> Hashed {
        let hash = self.files.info.records;
        let wants_digest = self.table.is_some() || hash == RecordHash::Sha256;
        let digest = wants_digest.then(|| padded_digest(&self.geometry(), bytes));
        let record = match (hash, &digest) {
            (RecordHash::Sha256, Some(digest)) => Record::of(digest),
            (RecordHash::Blake3, _) => Record::of_blake3(bytes),
            _ => Record::of_xxh3(bytes),
        };
        Hashed { record, digest }
    }

    pub(crate) fn hashed_on_disk(&self, chunk: u64) -> io::Result<Hashed> {
        let geometry = self.geometry();
        let mut bytes = vec![0; usize_from(geometry.len_of(chunk))];
        let offset = geometry.bytes_of(&(chunk..chunk + 1)).start;
        self.files.data.read_exact_at(&mut bytes, offset)?;
        Ok(self.hashed(&bytes))
    }

    /// Compares a chunk with the table; `None` if there is no table.
    ///
    /// # Errors
    /// The errors of [`VerifiedTable::verify_digest`](crate::VerifiedTable::verify_digest).
    pub(crate) fn compare_with_table(&self, chunk: u64, found: &Hashed) -> Option<Result<()>> {
        let (table, digest) = (self.table.as_ref()?, found.digest.as_ref()?);
        Some(table.verify_digest(chunk, digest))
    }
}
