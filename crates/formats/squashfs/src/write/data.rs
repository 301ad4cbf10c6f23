//! Reads, encodes and writes data and fragment blocks concurrently.
//!
//! Two parallel maps form a pipeline: files are fetched, the packer cuts them into blocks, the
//! blocks are encoded, and the calling thread writes them in order.

use std::collections::HashMap;

use forerun_build::{
    BuildError, ImageWriter, NodeIndex, ParallelBounds, fetch_files, parallel_map,
};
use forerun_codec::Encoder;
use forerun_io::usize_from;

use super::cannot;
use super::fetch::{PartLens, fetch};
use super::options::SquashfsOptions;
use super::pack::{FileData, Job, Packer, Role};
use super::plan::Plan;
use crate::ondisk::{BLOCK_STORED, FragmentEntry};

pub struct Data {
    files: HashMap<NodeIndex, FileData>,
    bodies: Vec<StoredBlocks>,
    pub fragments: Vec<FragmentEntry>,
}

#[derive(Clone, Debug, Default)]
pub struct StoredBlocks {
    /// Image offset of the first block.
    pub start: u64,
    /// Block sizes as inodes store them.
    pub sizes: Vec<u32>,
    /// Bytes in holes.
    pub sparse: u64,
}

impl Data {
    /// Returns the blocks of a file, and the number of its fragment block with the offset in it.
    pub fn of(&self, file: NodeIndex) -> (Option<&StoredBlocks>, Option<(u32, u32)>) {
        let data = self.files.get(&file).copied().unwrap_or_default();
        let body = data.body.and_then(|body| self.bodies.get(body));
        (body, data.fragment)
    }
}

pub fn write_data(
    plan: &Plan<'_>,
    options: &SquashfsOptions,
    bounds: ParallelBounds,
    out: &mut ImageWriter<'_>,
) -> Result<Data, BuildError> {
    let encoders = ParallelBounds {
        memory: bounds.memory / 4 * 3,
        ..bounds
    };
    let (mut bodies, mut fragments) = (Vec::new(), Vec::new());
    let files = parallel_map(
        encoders,
        || {
            let mut worker = Worker::new(options)?;
            Ok(move |job| Ok(worker.encode(job)))
        },
        |jobs| {
            let mut packer = Packer::new(plan, options, jobs);
            let lens = PartLens::of(plan, options);
            let files = plan.walked.files.iter();
            let wanted = files.map(|&file| (lens.wanted(file, options), file.len));
            let fetch = |wanted| fetch(plan, wanted);
            fetch_files(bounds.memory / 4, wanted, fetch, |file| packer.add(file))?;
            packer.finish()
        },
        |encoded| {
            let block = u64::from(options.block_size);
            Ok(write_block(
                &encoded,
                block,
                out,
                &mut bodies,
                &mut fragments,
            )?)
        },
    );
    Ok(Data {
        files: files?,
        bodies,
        fragments,
    })
}

struct Encoded {
    bytes: Vec<u8>,
    stored: bool,
    role: Role,
}

struct Worker<'o> {
    options: &'o SquashfsOptions,
    encoder: Encoder,
    scratch: Vec<u8>,
}

impl<'o> Worker<'o> {
    fn new(options: &'o SquashfsOptions) -> Result<Self, BuildError> {
        let encoder = Encoder::new(&options.encoding, options.block_size);
        Ok(Self {
            options,
            encoder: encoder.map_err(|error| cannot(error.to_string()))?,
            scratch: Vec::new(),
        })
    }

    fn encode(&mut self, job: Job) -> Encoded {
        let Job { bytes, role } = job;
        let compress = match role {
            Role::Block { .. } => self.options.compress.data,
            Role::Fragment => self.options.compress.fragments,
            Role::Hole { .. } => false,
        };
        let shorter = compress && self.encoder.encode(&bytes, &mut self.scratch);
        Encoded {
            // Copy to the exact length: waiting results should not hold a whole block's memory.
            bytes: if shorter { self.scratch.clone() } else { bytes },
            stored: !shorter,
            role,
        }
    }
}

fn write_block(
    block: &Encoded,
    block_size: u64,
    out: &mut ImageWriter<'_>,
    bodies: &mut Vec<StoredBlocks>,
    fragments: &mut Vec<FragmentEntry>,
) -> Result<(), BuildError> {
    let stored = if block.stored { BLOCK_STORED } else { 0 };
    let size = u32::try_from(block.bytes.len()).unwrap_or(0) | stored;
    let start = out.position();
    let (first, size, sparse, count) = match block.role {
        Role::Block { first } => (first, size, 0, 1),
        Role::Hole { first, len } => (first, 0, len, len.div_ceil(block_size)),
        Role::Fragment => {
            fragments.push(FragmentEntry {
                start_block: start.into(),
                size: size.into(),
                unused: 0.into(),
            });
            return out.write(&block.bytes);
        }
    };
    if first {
        bodies.push(StoredBlocks {
            start,
            ..StoredBlocks::default()
        });
    }
    if let Some(body) = bodies.last_mut() {
        let count = usize_from(count);
        body.sizes.resize(body.sizes.len() + count, size);
        body.sparse += sparse;
    }
    out.write(&block.bytes)
}
