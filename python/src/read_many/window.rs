//! Files that are read together, in the order of their places.

use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::path::PathBuf;

use forerun::vfs::{Bound, Error};
use forerun::{BlobId, Bulk, Data, Image, NodeId, TakenFile};

use super::Request;
use crate::errors::{Failed, Result};

/// The longest part that is read at once: its length may be what only the image claims.
const TRUSTED: u64 = 16 << 20;
/// Bytes read at once of a longer part.
const STEP: usize = 4 << 20;
/// Memory that a part takes besides its bytes.
const PART: u64 = 256;

/// Contents of a file, or of a part of one.
pub enum Bytes {
    /// As the engine has them.
    Data(Data),
    /// Put together.
    Long(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Data(data) => data,
            Self::Long(bytes) => bytes,
        }
    }
}

/// A part of a file that was found.
#[derive(Clone, Debug)]
pub struct Found {
    path: PathBuf,
    node: NodeId,
    place: (BlobId, u64),
    range: Range<u64>,
}

impl Found {
    /// Looks for a file in the image.
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
            let what = format!("length of a file to read whole, {len} bytes,");
            let error = Error::limit(Bound::ReadBytes, what, limit);
            return Err(Failed::from(error).at(&path).in_image(image.name()));
        }
        Ok(Self {
            place: image.reader().place(file.node()),
            node: file.node(),
            path,
            range,
        })
    }

    /// Returns the memory that it will take.
    pub const fn cost(&self) -> u64 {
        self.range
            .end
            .saturating_sub(self.range.start)
            .saturating_add(PART)
    }
}

/// Files that are read together.
pub struct Window {
    /// The memory that their contents take.
    pub bytes: u64,
    /// How many parts there are.
    pub len: usize,
    bulk: Bulk,
    /// The parts of each file, with their numbers.
    parts: HashMap<NodeId, Vec<(usize, Found)>>,
}

impl Window {
    /// Puts parts together.
    pub fn new(image: &Image, found: Vec<(usize, Found)>) -> Self {
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
            bulk: image.reader().bulk_at(places),
            parts,
        }
    }

    /// Takes the next file, and reads its parts. Returns nothing after the last one.
    pub fn read_next(&self) -> Option<Vec<(usize, Result<Bytes>)>> {
        let taken = self.bulk.take()?;
        let parts = self.parts.get(&taken.node).map_or(&[][..], Vec::as_slice);
        let read = parts
            .iter()
            .map(|(number, part)| (*number, self.read(&taken, part)));
        Some(read.collect())
    }

    fn read(&self, taken: &TakenFile, part: &Found) -> Result<Bytes> {
        let range = part.range.clone();
        let read = match range.end - range.start <= TRUSTED {
            true => self.bulk.read(taken, range, None).map(Bytes::Data),
            false => self.long(taken, range),
        };
        read.map_err(|error| Failed::from(error).at(&part.path))
    }

    fn long(&self, taken: &TakenFile, range: Range<u64>) -> forerun::vfs::Result<Bytes> {
        let (mut bytes, mut at) = (Vec::new(), range.start);
        while at < range.end {
            let want = usize::try_from(range.end - at).unwrap_or(STEP).min(STEP);
            let data = self.bulk.reader().read(taken.node, at, want)?;
            if data.is_empty() {
                break;
            }
            at = at.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
            bytes.extend_from_slice(&data);
        }
        Ok(Bytes::Long(bytes))
    }
}
