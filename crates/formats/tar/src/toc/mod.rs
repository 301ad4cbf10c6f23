//! Archives with a table of contents (TOC) from other programs: eStargz, zstd:chunked, and separate
//! SOCI tables.
//!
//! The table has all metadata, and the location and digest of each chunk of each file, so that
//! opening the archive reads nothing else. The driver trusts a table only if its digest comes from
//! a trusted document. It verifies each chunk with the digest in the table. `docs/formats/tar.md`
//! describes the bytes.

use forerun_io::{Limits, ReadAt};
#[cfg(feature = "fuzzing")]
use forerun_spans::Compression;
use forerun_vfs::{Error, ProvenTable, Result, TablePlace};

mod chunks;
mod digest;
mod entry;
mod error;
mod json;
mod locate;
mod record;
pub mod ztoc;

pub use chunks::Chunks;
#[cfg(feature = "fuzzing")]
pub use digest::of as digest_of;

use crate::index::Index;
use record::TocRecorder;

/// Bytes at the end of an eStargz archive that are fetched again if its table is wrong.
const DISTRUSTED: u64 = 16 << 20;

/// Opens an archive from the table inside it. A table that is invalid or has another digest is
/// `Corrupt`.
pub fn open(source: &dyn ReadAt, table: &ProvenTable, limits: &Limits) -> Result<(Index, Chunks)> {
    let table = locate::read(source, table, limits).inspect_err(|error| {
        match (error, &table.place) {
            (Error::Corrupt(_), &TablePlace::At { offset, len, .. }) => {
                if let Some(end) = offset.checked_add(len) {
                    source.distrust(offset..end);
                }
            }
            // The footer gives the location of the table, so any of the bytes after the data may be
            // wrong.
            (Error::Corrupt(_), TablePlace::Footer) => {
                source.distrust(source.len().saturating_sub(DISTRUSTED)..source.len());
            }
            _ => {}
        }
    })?;
    let mut recorder = TocRecorder::new(table.compression, table.offset, limits);
    json::read(&table.json, &mut recorder)?;
    drop(table.json);
    recorder.finish(source.len())
}

/// Opens an archive from the text of a table at `offset`, where the data ends.
#[cfg(feature = "fuzzing")]
pub fn of_json(
    json: &[u8],
    compression: Compression,
    offset: u64,
    limits: &Limits,
) -> Result<(Index, Chunks)> {
    let mut recorder = TocRecorder::new(compression, offset, limits);
    json::read(json, &mut recorder)?;
    recorder.finish(offset)
}
