//! Records of the stored chunks: the first 8 bytes of a hash of each.
//!
//! A record is written after its chunk and is not synced, so it only hints that the chunk is worth
//! reading and hashing. Processes use records to find chunks that other processes have fetched, and
//! equal chunks of other images. With records, chunks survive a kill before they are durable. In a
//! blob without a table, chunks are compared with their records, so there the records are synced
//! together with the data.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use forerun_io::{u64_from, usize_from};
use twox_hash::xxhash3_64;

use crate::Digest;

const LEN: u64 = 8;
const STEP: u64 = 8192;

/// The hash that a blob's records use. It never changes for a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordHash {
    /// The digest that a table has for the chunk. It lets blobs find chunks that they have in
    /// common.
    Sha256,
    /// BLAKE3, for blobs of earlier versions whose name is not a digest.
    Blake3,
    /// XXH3, for blobs whose name is not a digest. Each chunk of such a blob is compared with its
    /// record at its first use, and XXH3 takes a fraction of the time of the other hashes. It
    /// detects accidental damage. A program that alters chunks on purpose can alter their records
    /// too, whatever the hash.
    Xxh3,
}

impl RecordHash {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Blake3 => "blake3",
            Self::Xxh3 => "xxh3",
        }
    }

    /// Returns the hash with that name in the file `info`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let all = [Self::Sha256, Self::Blake3, Self::Xxh3];
        all.into_iter().find(|hash| hash.name() == name)
    }
}

/// The first bytes of a chunk's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Record(u64);

impl Record {
    /// The record of a chunk that was not stored.
    pub(crate) const NONE: Self = Self(0);

    /// Returns the record for a chunk's digest. Never [`NONE`](Self::NONE).
    pub(crate) fn of(digest: &Digest) -> Self {
        Self::of_start(&digest.0)
    }

    /// Returns the record for a chunk's BLAKE3 hash. Never [`NONE`](Self::NONE).
    pub(crate) fn of_blake3(bytes: &[u8]) -> Self {
        Self::of_start(blake3::hash(bytes).as_bytes())
    }

    /// Returns the record for a chunk's XXH3 hash. Never [`NONE`](Self::NONE).
    pub(crate) fn of_xxh3(bytes: &[u8]) -> Self {
        Self::of_hash(xxhash3_64::Hasher::oneshot(bytes))
    }

    fn of_start(hash: &[u8; 32]) -> Self {
        let start = hash.first_chunk().copied().unwrap_or_default();
        Self::of_hash(u64::from_le_bytes(start))
    }

    fn of_hash(hash: u64) -> Self {
        Self(hash.max(1))
    }
}

/// The file with a fixed-length record for each chunk of a blob.
#[derive(Debug)]
pub(crate) struct Records {
    file: File,
}

impl Records {
    pub(crate) const fn file_len(chunks: u64) -> u64 {
        chunks * LEN
    }

    pub(crate) const fn new(file: File) -> Self {
        Self { file }
    }

    /// Calls `visit` for each chunk of `range` that has a record. The file may be too short; the
    /// chunks past its end have none.
    pub(crate) fn each(
        &self,
        range: Range<u64>,
        mut visit: impl FnMut(u64, Record),
    ) -> io::Result<()> {
        let mut buffer = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let step = STEP.min(range.end - at);
            buffer.resize(usize_from(step * LEN), 0);
            let got = read_up_to(&self.file, &mut buffer, at * LEN)?;
            let (records, _torn) = buffer.get(..got).unwrap_or_default().as_chunks::<8>();
            for (chunk, bytes) in (at..).zip(records) {
                let record = Record(u64::from_le_bytes(*bytes));
                if record != Record::NONE {
                    visit(chunk, record);
                }
            }
            if u64_from(got) < step * LEN {
                break;
            }
            at += step;
        }
        Ok(())
    }

    pub(crate) fn write(&self, first: u64, records: &[Record]) -> io::Result<()> {
        let bytes: Vec<u8> = records
            .iter()
            .flat_map(|record| record.0.to_le_bytes())
            .collect();
        self.file.write_all_at(&bytes, first * LEN)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_up_to(file: &File, out: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut got = 0;
    while let Some(rest) = out.get_mut(got..)
        && !rest.is_empty()
    {
        match file.read_at(rest, offset + u64_from(got)) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
