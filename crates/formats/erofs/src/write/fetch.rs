//! Files read, and hashed where they may have a twin.
//!
//! Small files are read whole, several at a time by several threads. Long ones are only passed on:
//! the packer reads them part by part.

use std::collections::HashMap;

use forerun_build::{BuildError, read_whole};
use forerun_io::saturating_usize;

use super::plan::{Plan, PlannedFile};

/// Files up to this are read whole.
pub const WHOLE: u64 = 1 << 20;
/// Files handed over together, and bytes of them.
const BATCH: usize = 32;
const BATCH_BYTES: u64 = 256 << 10;

/// BLAKE3, for which no collision can be made: equal hashes of equally long contents are equal contents,
/// so no byte needs to be read back to be sure.
pub type Hash = [u8; 32];

/// A file and what is to be done with it.
#[derive(Clone, Copy)]
pub struct Wanted<'t> {
    pub file: PlannedFile<'t>,
    /// Whether another file is as long.
    pub hash: bool,
}

pub struct Fetched<'t> {
    pub wanted: Wanted<'t>,
    /// All of it, and its hash; nothing for a long file.
    pub whole: Option<(Vec<u8>, Option<Hash>)>,
}

/// All files in their order, in batches.
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
