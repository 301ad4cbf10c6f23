//! Reads, encodes and stores file contents concurrently.
//!
//! Two parallel maps form a pipeline: files are fetched, the packer cuts them into parts, the parts
//! are encoded, and the calling thread stores them in order. Data blocks are numbered from the
//! first data block, because inodes are placed later and come before it.

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

/// The block of a chunk of zeros, which is not stored.
pub const HOLE: u32 = u32::MAX;

pub struct Data {
    pub files: HashMap<NodeIndex, FileData>,
    pub bodies: Vec<Body>,
    /// First block of each chunk.
    pub chunks: Vec<u32>,
    pub tails: Spool,
    pub blocks: u64,
    /// Whether an extent is stored once and used several times.
    pub shared: bool,
    pub packed: Option<PackedInode>,
}

/// The concatenated data of many files.
#[derive(Clone, Copy, Debug)]
pub struct PackedInode {
    pub len: u64,
    /// Index of the body that holds the data.
    pub body: usize,
}

#[derive(Clone, Debug)]
pub enum FileData {
    /// Index of a body in storing order.
    Body(usize),
    /// Indexes of chunks in storing order.
    Chunks(Vec<u32>),
}

/// The stored data of one file, or of several equal files.
#[derive(Clone, Debug)]
pub enum Body {
    /// Whole blocks, and an inline tail.
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
    /// The last extent, if it is stored after the inode.
    pub inline: Option<Spooled>,
    /// Whether a full index is needed: an extent is shared, so that extents are not consecutive, or
    /// the fragment's offset is too large for a compacted index.
    pub scattered: bool,
    /// Offset of the last extent in the packed inode, if it is a fragment.
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

/// An extent of a file, which ends where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub at: u64,
    pub kind: ExtentKind,
    pub block: u32,
    /// Number of blocks; 0 for an inline tail or a fragment.
    pub blocks: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    Compressed,
    /// At most one block, stored uncompressed.
    Plain,
    /// Consecutive whole blocks, stored uncompressed.
    Run,
    /// Data in the packed inode, without blocks.
    Fragment,
}

impl Data {
    pub fn packed(&self) -> Option<(PackedInode, &Body)> {
        let packed = self.packed?;
        Some((packed, self.bodies.get(packed.body)?))
    }

    /// Returns the first block of a chunk. `base` is the first block of data.
    pub fn chunk(&self, chunk: u32, base: u32) -> u32 {
        let start = self.chunks.get(usize_from(chunk.into()));
        start.map_or(HOLE, |start| base + start)
    }

    /// Returns the chunks and the body of a file; neither for an empty file.
    pub fn of(&self, file: NodeIndex) -> (Option<&[u32]>, Option<&Body>) {
        match self.files.get(&file) {
            None => (None, None),
            Some(FileData::Chunks(chunks)) => (Some(chunks), None),
            Some(&FileData::Body(body)) => (None, self.bodies.get(body)),
        }
    }
}

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
