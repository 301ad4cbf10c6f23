//! The data map of a sparse file in an archive.

use std::ops::{ControlFlow, Range};

use forerun_engine::Reader;
use forerun_vfs::Place;

use crate::ExportError;
use crate::select::{Selected, failure};

/// Minimum bytes of holes for which a map pays off: the size of the map's block and its headers.
const LEAST: u64 = 4096;
const BLOCK: u64 = 512;
/// Maximum number of ranges per file; the last one then covers the rest of the file. Readers have
/// limits too.
const MOST: usize = 1 << 16;

pub struct SparseMap {
    parts: Vec<Range<u64>>,
    data: u64,
}

/// The ranges in order, in a form that archives support.
struct Parts {
    parts: Vec<Range<u64>>,
    size: u64,
}

impl Parts {
    fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // Every range but the last must end at a block boundary: readers disagree about the data
        // after any other.
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
    /// Returns the map of a file, `None` if the file is better written without one.
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
        // Iterate over extents instead of bounded ranges: an image can claim any file size.
        let mapped = reader.fs().map(entry.node, 0..size, &mut |extent| {
            let Range { start, end } = extent.logical;
            // An uncovered range counts as data; reading it returns the error.
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

    pub const fn data(&self) -> u64 {
        self.data
    }

    /// Formats the map that precedes the data, in whole blocks: the number of ranges, then offset
    /// and length of each, one number per line.
    pub fn text(&self, size: u64) -> Vec<u8> {
        let end = self.parts.last().map_or(0, |part| part.end);
        // An empty range marks a hole at the end.
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
