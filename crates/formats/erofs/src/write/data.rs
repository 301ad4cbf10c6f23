//! Reads, encodes and stores the contents of files concurrently.
//!
//! Two parallel maps form a pipeline: files are fetched, the packer cuts them into parts, the parts
//! are encoded, and this thread stores them in order. Places of data count from the first block of
//! the data, because its place is not known before all inodes are placed.

use std::collections::HashMap;

use forerun_build::{BuildError, NodeIndex, ParallelBounds, fetch_files, parallel_map};

use forerun_io::usize_from;

use super::encode::Worker;
use super::fetch::{fetch, wanted};
use super::fragments::write_packed;
use super::options::ErofsOptions;
use super::pack::Packer;
use super::plan::Plan;
use super::shape::Shapes;
use super::sink::Sink;
use super::spool::{Spool, Spooled};
use super::store::Store;

/// A chunk of zeros, which is not stored.
pub const HOLE: u32 = u32::MAX;

/// The places of all contents.
pub struct Data {
    pub files: HashMap<NodeIndex, FileData>,
    pub bodies: Vec<Body>,
    /// The first blocks of chunks.
    pub chunks: Vec<u32>,
    /// The ends of files.
    pub tails: Spool,
    /// Blocks in the image.
    pub blocks: u64,
    /// Whether some extent is stored once for several files or places.
    pub shared: bool,
    /// The packed inode, if it holds any data.
    pub packed: Option<PackedInode>,
}

/// Data of many files, concatenated.
#[derive(Clone, Copy, Debug)]
pub struct PackedInode {
    pub len: u64,
    /// Number of the body with these data.
    pub body: usize,
}

/// The parts of a file's data.
#[derive(Clone, Debug)]
pub enum FileData {
    /// A body, by its number in the order of storing.
    Body(usize),
    /// Chunks, by their numbers in the order of storing.
    Chunks(Vec<u32>),
}

/// Data of a file, or of several equal ones.
#[derive(Clone, Debug)]
pub enum Body {
    /// Whole blocks, and the bytes behind the inode.
    Flat {
        start: u32,
        tail: Option<Spooled>,
    },
    Packed(Packed),
}

#[derive(Clone, Debug, Default)]
pub struct Packed {
    pub extents: Vec<Extent>,
    pub blocks: u32,
    /// The last extent, if it lies behind the inode.
    pub inline: Option<Spooled>,
    /// Whether full indexes are needed: an extent is shared with other data, so that extents do not
    /// follow each other, or a fragment's offset is too large for compacted ones.
    pub scattered: bool,
    /// Offset of the last extent in the packed inode, if it is there.
    pub fragment: Option<u64>,
}

impl Packed {
    /// Returns the offset in the packed inode if it holds the whole file.
    pub fn whole_fragment(&self) -> Option<u64> {
        match self.extents.as_slice() {
            [only] if only.kind == ExtentKind::Fragment => self.fragment,
            _ => None,
        }
    }
}

/// Data of a file, up to the start of the next extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file.
    pub at: u64,
    pub kind: ExtentKind,
    pub block: u32,
    /// Number of blocks; none if it lies behind the inode or in the packed inode.
    pub blocks: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    Compressed,
    /// At most one block, stored as it is.
    Plain,
    /// Whole blocks stored as they are, as many as in the file.
    Run,
    /// In the packed inode; it has no blocks.
    Fragment,
}

impl Data {
    /// Returns the packed inode and its data.
    pub fn packed(&self) -> Option<(PackedInode, &Body)> {
        let packed = self.packed?;
        Some((packed, self.bodies.get(packed.body)?))
    }

    /// Returns the first block of a chunk, where blocks of data count from `base`.
    pub fn chunk(&self, chunk: u32, base: u32) -> u32 {
        let start = self.chunks.get(usize_from(chunk.into()));
        start.map_or(HOLE, |start| base + start)
    }

    /// Returns chunks and body of a file; neither for an empty one.
    pub fn of(&self, file: NodeIndex) -> (Option<&[u32]>, Option<&Body>) {
        match self.files.get(&file) {
            None => (None, None),
            Some(FileData::Chunks(chunks)) => (Some(chunks), None),
            Some(&FileData::Body(body)) => (None, self.bodies.get(body)),
        }
    }
}

/// Stores all contents within these bounds.
pub fn write_data(
    plan: &Plan<'_>,
    shapes: &Shapes,
    options: &ErofsOptions,
    bounds: ParallelBounds,
    sink: &mut Sink<'_, '_>,
) -> Result<Data, BuildError> {
    let encoders = ParallelBounds {
        memory: bounds.memory / 4 * 3,
        ..bounds
    };
    let mut store = Store::new(options, plan.walked.files.len(), sink);
    let files = parallel_map(
        encoders,
        || {
            let mut worker = Worker::new(options)?;
            Ok(move |part| Ok(worker.encode(part)))
        },
        |jobs| {
            let mut packer = Packer::new(plan, shapes, options, jobs);
            let wanted = wanted(plan, options.duplicates);
            let fetch = |wanted| fetch(plan, wanted);
            fetch_files(bounds.memory / 4, wanted, fetch, |file| packer.add(file))?;
            Ok(packer.finish())
        },
        |encoded| Ok(store.add(encoded)?),
    );
    let files = files?;
    let packed = write_packed(&mut store, options, encoders)?;
    Ok(store.finish(files, packed))
}
