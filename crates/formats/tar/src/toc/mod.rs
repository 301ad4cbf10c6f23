//! Archives with a table of contents (TOC) that others made: eStargz and zstd:chunked.
//!
//! The table has all metadata, and the place and digest of each piece of each file, so that nothing else of the archive
//! is read before a file is. It counts only with a digest of it from a trusted document. Each piece is then
//! verified against its digest in the table. `docs/formats/tar.md` describes the bytes.

use forerun_io::{Limits, ReadAt};
use forerun_vfs::{ProvenTable, Result};

mod chunks;
mod digest;
mod entry;
mod error;
mod json;
mod locate;
mod record;

pub use chunks::Chunks;

use crate::index::Index;
use record::Recorder;

/// Opens an archive by the table in it.
///
/// # Errors
/// `Corrupt` with the offset of the table for one that has another digest, or says what cannot be; `Limit`,
/// `Unsupported`, `Io`.
pub fn open(source: &dyn ReadAt, table: &ProvenTable, limits: &Limits) -> Result<(Index, Chunks)> {
    let table = locate::read(source, table, limits)?;
    let mut recorder = Recorder::new(table.compression, table.offset, limits);
    json::read(&table.json, &mut recorder)?;
    drop(table.json);
    recorder.finish(source.len())
}
