//! The parts of a sparse file that an archive holds.

use std::ops::Range;

use forerun_engine::Reader;

use crate::ExportError;
use crate::content::{Piece, visit_data};
use crate::select::{Selected, failure};

/// Holes of a file that are worth a map, in bytes: as much as the map's block and its headers take.
const LEAST: u64 = 4096;
/// Length of a block of an archive.
const BLOCK: u64 = 512;
/// Parts of one file; where there are more, the last holds the rest of the file. Readers bound them
/// too.
const MOST: usize = 1 << 16;

/// What of a file is data.
pub struct SparseMap {
    parts: Vec<Range<u64>>,
    data: u64,
}

impl SparseMap {
    /// The map of a file; nothing for one that is better written whole.
    pub fn of(reader: &Reader, entry: &Selected) -> Result<Option<Self>, ExportError> {
        let size = entry.metadata.size;
        if size < LEAST {
            return Ok(None);
        }
        let mut parts: Vec<Range<u64>> = Vec::new();
        let mapped = visit_data(reader, entry.node, size, &mut |Piece { range, .. }| {
            // Each part but the last fills whole blocks: readers disagree on what follows one that
            // does not.
            let end = range.end.checked_next_multiple_of(BLOCK).unwrap_or(size);
            let piece = range.start - range.start % BLOCK..end.min(size);
            let full = parts.len() >= MOST;
            match parts.last_mut() {
                Some(last) if full || last.end >= piece.start => last.end = piece.end,
                _ => parts.push(piece),
            }
            Ok::<_, forerun_vfs::Error>(())
        });
        mapped.map_err(|error| failure(entry, error))?;
        let data = parts.iter().map(|part| part.end - part.start).sum();
        Ok((size - data >= LEAST).then_some(Self { parts, data }))
    }

    pub fn parts(&self) -> &[Range<u64>] {
        &self.parts
    }

    /// Bytes of all parts.
    pub const fn data(&self) -> u64 {
        self.data
    }

    /// The map as it stands before the data, in whole blocks: the number of parts, then offset and
    /// length of each, one number a line.
    pub fn text(&self, size: u64) -> Vec<u8> {
        let end = self.parts.last().map_or(0, |part| part.end);
        // A hole at the end shows as a part without bytes.
        let tail = (end < size).then_some(size..size);
        let parts = || self.parts.iter().cloned().chain(tail.clone());
        let mut text = format!("{}\n", parts().count());
        for part in parts() {
            text.push_str(&format!("{}\n{}\n", part.start, part.end - part.start));
        }
        let mut bytes = text.into_bytes();
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }
}
