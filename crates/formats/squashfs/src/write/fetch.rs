//! Reads files, and hashes those that may have a duplicate.
//!
//! Small files are read whole, several at a time by several threads. Long ones are only passed on:
//! the packer reads them block by block.

use std::collections::HashMap;

use forerun_build::{BuildError, read_whole};
use forerun_io::saturating_usize;

use super::options::SquashfsOptions;
use super::plan::{Plan, PlannedFile};

/// Files up to this length are read whole.
pub const WHOLE: u64 = 1 << 20;
/// Most files handed over together, and most bytes of them.
const BATCH: usize = 32;
const BATCH_BYTES: u64 = 256 << 10;

/// BLAKE3, for which no collision is feasible: equal hashes of equally long contents mean equal
/// contents, so no byte needs to be read back.
pub type Hash = [u8; 32];

/// A file and how to process it.
#[derive(Clone, Copy)]
pub struct Wanted<'t> {
    pub file: PlannedFile<'t>,
    /// Bytes in blocks of its own; the rest goes to a fragment.
    pub body_len: u64,
    /// Whether the blocks of another file have the same length.
    pub hash_body: bool,
    /// Whether the rest of another file has the same length.
    pub hash_tail: bool,
}

pub struct Fetched<'t> {
    pub wanted: Wanted<'t>,
    /// The whole contents; nothing for a long file.
    pub whole: Option<Whole>,
}

pub struct Whole {
    pub body: Vec<u8>,
    pub body_hash: Option<Hash>,
    pub tail: Vec<u8>,
    pub tail_hash: Option<Hash>,
}

/// Sends all files in their order, in batches.
pub fn batches<'t>(
    plan: &Plan<'t>,
    options: &SquashfsOptions,
    send: &mut dyn FnMut(Vec<Wanted<'t>>, usize) -> bool,
) {
    let lens = Lens::of(plan, options);
    let (mut batch, mut bytes) = (Vec::with_capacity(BATCH), 0);
    for &file in &plan.files {
        let wanted = lens.wanted(file, options);
        let len = if file.len > WHOLE { 0 } else { file.len };
        if batch.len() == BATCH || (bytes + len > BATCH_BYTES && !batch.is_empty()) {
            let next = std::mem::replace(&mut batch, Vec::with_capacity(BATCH));
            if !send(next, saturating_usize(bytes)) {
                return;
            }
            bytes = 0;
        }
        batch.push(wanted);
        bytes += len;
    }
    if !batch.is_empty() {
        send(batch, saturating_usize(bytes));
    }
}

/// Counts files by the length of their parts: a part of unique length has no duplicate, and need
/// not be hashed.
#[derive(Default)]
struct Lens {
    bodies: HashMap<u64, bool>,
    tails: HashMap<u64, bool>,
}

impl Lens {
    fn of(plan: &Plan<'_>, options: &SquashfsOptions) -> Self {
        let mut lens = Self::default();
        if options.duplicates {
            for file in &plan.files {
                let body = options.body_len(file.len);
                for (map, len) in [(&mut lens.bodies, body), (&mut lens.tails, file.len - body)] {
                    map.entry(len)
                        .and_modify(|shared| *shared = true)
                        .or_insert(false);
                }
            }
        }
        lens
    }

    fn wanted<'t>(&self, file: PlannedFile<'t>, options: &SquashfsOptions) -> Wanted<'t> {
        let body_len = options.body_len(file.len);
        let shared = |map: &HashMap<u64, bool>, len| len > 0 && map.get(&len) == Some(&true);
        Wanted {
            file,
            body_len,
            hash_body: shared(&self.bodies, body_len),
            hash_tail: shared(&self.tails, file.len - body_len),
        }
    }
}

/// Reads a small file.
pub fn fetch<'t>(plan: &Plan<'t>, wanted: Wanted<'t>) -> Result<Fetched<'t>, BuildError> {
    if wanted.file.len > WHOLE {
        return Ok(Fetched {
            wanted,
            whole: None,
        });
    }
    let mut body = read_whole(wanted.file.content, wanted.file.len)
        .map_err(|reason| plan.unreadable(&wanted.file, reason))?;
    let tail = match saturating_usize(wanted.body_len) {
        // Most files: no bytes are copied.
        0 => std::mem::take(&mut body),
        len => body.split_off(len.min(body.len())),
    };
    let hash = |wanted: bool, bytes: &[u8]| wanted.then(|| *blake3::hash(bytes).as_bytes());
    Ok(Fetched {
        wanted,
        whole: Some(Whole {
            body_hash: hash(wanted.hash_body, &body),
            tail_hash: hash(wanted.hash_tail, &tail),
            body,
            tail,
        }),
    })
}
