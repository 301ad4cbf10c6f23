//! Archives with a table of contents (TOC) that others made: eStargz, zstd:chunked, and the tables of SOCI beside them.
//!
//! The table has all metadata, and the place and digest of each piece of each file, so that nothing else of the archive
//! is read before a file is. It counts only with a digest of it from a trusted document. Each piece is then
//! verified against its digest in the table. `docs/formats/tar.md` describes the bytes.

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

/// Bytes at the end of an eStargz archive that are fetched again if its table is not what it should be.
const DISTRUSTED: u64 = 16 << 20;

/// Opens an archive by the table in it.
///
/// # Errors
/// `Corrupt` with the offset of the table for one that has another digest, or says what cannot be; `Limit`,
/// `Unsupported`, `Io`.
pub fn open(source: &dyn ReadAt, table: &ProvenTable, limits: &Limits) -> Result<(Index, Chunks)> {
    let table = locate::read(source, table, limits).inspect_err(|error| {
        match (error, &table.place) {
            (Error::Corrupt(_), &TablePlace::At { offset, len, .. }) => {
                if let Some(end) = offset.checked_add(len) {
                    source.distrust(offset..end);
                }
            }
            // The footer leads to it: any of the bytes behind the data may be wrong.
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

/// Opens an archive by the text of a table that is at `offset`, where the data ends.
///
/// # Errors
/// The errors of [`open`].
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
