//! Hashes files that may have a duplicate.
//!
//! A long file is only passed on: the packer reads it part by part.

use forerun_build::{BuildError, ContentHash, RepeatedLens, WalkedFile, read_small};

use super::plan::Plan;

/// A file and how to process it.
#[derive(Clone, Copy)]
pub struct Wanted<'t> {
    pub file: WalkedFile<'t>,
    /// Whether another file has the same length.
    pub hash: bool,
}

pub struct Fetched<'t> {
    pub wanted: Wanted<'t>,
    /// The whole contents and their hash; nothing for a long file.
    pub whole: Option<(Vec<u8>, Option<ContentHash>)>,
}

/// Returns all files in their order, each with its length.
pub fn wanted<'t>(
    plan: &Plan<'t>,
    find_twins: bool,
) -> impl Iterator<Item = (Wanted<'t>, u64)> + Send {
    let mut lens = RepeatedLens::default();
    if find_twins {
        plan.walked.files.iter().for_each(|file| lens.add(file.len));
    }
    plan.walked.files.iter().map(move |&file| {
        let hash = lens.has(file.len);
        (Wanted { file, hash }, file.len)
    })
}

/// Reads a small file, and hashes it if it may have a duplicate.
pub fn fetch<'t>(plan: &Plan<'t>, wanted: Wanted<'t>) -> Result<Fetched<'t>, BuildError> {
    let whole = read_small(&plan.walked, &wanted.file)?.map(|bytes| {
        let hash = wanted.hash.then(|| *blake3::hash(&bytes).as_bytes());
        (bytes, hash)
    });
    Ok(Fetched { wanted, whole })
}
