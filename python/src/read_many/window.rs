//! Files that are read together, in physical order.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use forerun::Image;
use forerun::vfs::{Bound, Error, NodeId};
use forerun_engine::{Asked, Bulk, FilePlace, GroupBlock, TakenFile};

use super::Request;
use super::gathered::Gathered;
use crate::contents::{self, Bytes};
use crate::errors::{Failed, Result};

/// Memory that a part uses besides its bytes.
const PART: u64 = 256;

/// A part of a file, after the lookup.
#[derive(Clone, Debug)]
pub struct Found {
    path: PathBuf,
    node: NodeId,
    place: FilePlace,
    range: Range<u64>,
}

impl Found {
    pub fn of(image: &Image, wanted: Request) -> Result<Self> {
        let Request { path, range } = wanted;
        let file = image.file(&path)?;
        let size = file.metadata().size;
        let range = match range {
            Some(range) => range.start.min(size)..range.end.min(size).max(range.start.min(size)),
            None => 0..size,
        };
        let (len, limit) = (range.end - range.start, image.reader().limits().read_bytes);
        if len > limit {
            let what = format!("length of a file that is read as a whole, {len} bytes,");
            let error = Error::limit(Bound::ReadBytes, what, limit);
            return Err(Failed::from(error).at(&path).in_image(image.name()));
        }
        Ok(Self {
            place: image.reader().place(file.node(), size),
            node: file.node(),
            path,
            range,
        })
    }

    const fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    /// Returns the memory that the part will use.
    pub const fn cost(&self) -> u64 {
        self.len().saturating_add(PART)
    }
}

/// Files that are read together.
pub struct Window {
    /// Memory that the contents use.
    pub bytes: u64,
    /// Number of parts.
    pub len: usize,
    bulk: Bulk,
    /// The parts of each file, with their request numbers.
    parts: HashMap<NodeId, Vec<(usize, Found)>>,
}

impl Window {
    pub fn new(image: &Image, found: Vec<(usize, Found)>, asked: Asked) -> Self {
        let (mut bytes, len) = (0_u64, found.len());
        let mut parts: HashMap<NodeId, Vec<(usize, Found)>> = HashMap::new();
        let mut places = Vec::new();
        for (number, part) in found {
            bytes = bytes.saturating_add(part.cost());
            let of_file = parts.entry(part.node).or_default();
            if of_file.is_empty() {
                places.push((part.place, part.node));
            }
            of_file.push((number, part));
        }
        Self {
            bytes,
            len,
            bulk: image.reader().bulk_at(places, asked),
            parts,
        }
    }

    /// Takes the files of the next block, and reads their parts. Returns false after the last
    /// block.
    pub fn read_next(&self, gathered: &mut Gathered) -> bool {
        let group = self.bulk.take_group();
        let parts = group.iter().flat_map(|taken| {
            let parts = self.parts.get(&taken.node).map_or(&[][..], Vec::as_slice);
            parts
                .iter()
                .map(move |(number, part)| (taken, *number, part))
        });
        let wanted: u64 = parts.clone().map(|(_, _, part)| part.len()).sum();
        let block = match wanted > 0 {
            // Ignore a decoding error here: it repeats for each file below, with the file's name.
            true => self.bulk.read_block(&group).ok().flatten(),
            false => None,
        };
        for (taken, number, part) in parts {
            gathered.add(number, self.read(taken, block.as_ref(), part), wanted);
        }
        !group.is_empty()
    }

    fn read(
        &self,
        taken: &TakenFile,
        block: Option<&GroupBlock<'_>>,
        part: &Found,
    ) -> Result<Bytes> {
        let of_block = block.and_then(|block| block.part(taken, part.range.clone()));
        if let Some(data) = of_block {
            return Ok(Bytes::Data(data));
        }
        let (reader, range) = (self.bulk.reader(), part.range.clone());
        let read = contents::read(reader, taken.node, range, |range| {
            self.bulk.read(taken, range, None)
        });
        read.map_err(|error| Failed::from(error).at(&part.path))
    }
}
