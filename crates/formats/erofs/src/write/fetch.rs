//! Reads files, and hashes those that may have a duplicate.
//!
//! Small files are read whole, several at a time by several threads. Long ones are only passed on:
//! the packer reads them part by part.

use std::collections::HashMap;

use forerun_build::{BuildError, read_whole};
use forerun_io::saturating_usize;

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
    /// Whether another file has the same length.
    pub hash: bool,
}

pub struct Fetched<'t> {
    pub wanted: Wanted<'t>,
    /// The whole contents and their hash; nothing for a long file.
    pub whole: Option<(Vec<u8>, Option<Hash>)>,
}

/// Sends all files in their order, in batches.
pub fn batches<'t>(
    plan: &Plan<'t>,
    find_twins: bool,
    send: &mut dyn FnMut(Vec<Wanted<'t>>, usize) -> bool,
) {
    let mut lens: HashMap<u64, bool> = HashMap::new();
    if find_twins {
        for file in &plan.files {
            let shared = lens.entry(file.len);
            shared.and_modify(|shared| *shared = true).or_insert(false);
        }
    }
    let (mut batch, mut bytes) = (Vec::with_capacity(BATCH), 0);
    for &file in &plan.files {
        let hash = lens.get(&file.len) == Some(&true);
        let len = if file.len > WHOLE { 0 } else { file.len };
        if batch.len() == BATCH || (bytes + len > BATCH_BYTES && !batch.is_empty()) {
            let next = std::mem::replace(&mut batch, Vec::with_capacity(BATCH));
            if !send(next, saturating_usize(bytes)) {
                return;
            }
            bytes = 0;
        }
        batch.push(Wanted { file, hash });
        bytes += len;
    }
    if !batch.is_empty() {
        send(batch, saturating_usize(bytes));
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
    let bytes = read_whole(wanted.file.content, wanted.file.len)
        .map_err(|reason| plan.unreadable(&wanted.file, reason))?;
    let hash = wanted.hash.then(|| *blake3::hash(&bytes).as_bytes());
    Ok(Fetched {
        wanted,
        whole: Some((bytes, hash)),
    })
}
