//! The parts of a sparse file that an archive holds.

use std::ops::{ControlFlow, Range};

use forerun_engine::Reader;
use forerun_vfs::Place;

use crate::ExportError;
use crate::select::{Selected, failure};

/// Holes of a file that are worth a map, in bytes: as much as the map's block and its headers take.
const LEAST: u64 = 4096;
/// Length of a block of an archive.
const BLOCK: u64 = 512;
/// Parts of one file; where there are more, the last holds the rest of the file. Readers bound them
/// too.
const MOST: usize = 1 << 16;

/// The ranges of a file that are data.
pub struct SparseMap {
    parts: Vec<Range<u64>>,
    data: u64,
}

/// Parts in order, as an archive can hold them.
struct Parts {
    parts: Vec<Range<u64>>,
    size: u64,
}

impl Parts {
    fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // Each part but the last fills whole blocks: readers disagree on what follows one that does
        // not.
        let end = range.end.checked_next_multiple_of(BLOCK);
        let end = end.unwrap_or(self.size).min(self.size);
        let start = range.start - range.start % BLOCK;
        let full = self.parts.len() >= MOST;
        match self.parts.last_mut() {
            Some(last) if full || last.end >= start => last.end = last.end.max(end),
            _ => self.parts.push(start..end),
        }
    }
}

impl SparseMap {
    /// Creates the map of a file; nothing for one that is better written whole.
    pub fn of(reader: &Reader, entry: &Selected) -> Result<Option<Self>, ExportError> {
        let size = entry.metadata.size;
        if size < LEAST {
            return Ok(None);
        }
        let mut parts = Parts {
            parts: Vec::new(),
            size,
        };
        let mut at = 0;
        // By extents and not by pieces of a bounded length: an image can give a file any size.
        let mapped = reader.fs().map(entry.node, 0..size, &mut |extent| {
            let Range { start, end } = extent.logical;
            // A gap counts as data: reading it returns the error.
            parts.add(at..start.min(size));
            if !matches!(extent.place, Place::Zero) {
                parts.add(start.max(at)..end.min(size));
            }
            at = at.max(end);
            ControlFlow::Continue(())
        });
        mapped.map_err(|error| failure(entry, error))?;
        parts.add(at..size);
        let parts = parts.parts;
        let data = parts.iter().map(|part| part.end - part.start).sum();
        Ok((size - data >= LEAST).then_some(Self { parts, data }))
    }

    pub fn parts(&self) -> &[Range<u64>] {
        &self.parts
    }

    /// Returns the bytes of all parts.
    pub const fn data(&self) -> u64 {
        self.data
    }

    /// Formats the map as it stands before the data, in whole blocks: the number of parts, then offset
    /// and length of each, one number a line.
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
