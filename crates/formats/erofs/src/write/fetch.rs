//! Reads short files, and hashes those that may be duplicates.
//!
//! The packer reads long files itself, part by part.

use forerun_build::{BuildError, ContentHash, RepeatedLens, WalkedFile, read_small};

use super::plan::Plan;

#[derive(Clone, Copy)]
pub struct Wanted<'t> {
    pub file: WalkedFile<'t>,
    /// Whether another file has the same length.
    pub hash: bool,
}

pub struct Fetched<'t> {
    pub wanted: Wanted<'t>,
    /// Contents and hash; `None` for a long file.
    pub whole: Option<(Vec<u8>, Option<ContentHash>)>,
}

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

/// Reads a short file, and hashes it if it may be a duplicate.
pub fn fetch<'t>(plan: &Plan<'t>, wanted: Wanted<'t>) -> Result<Fetched<'t>, BuildError> {
    let whole = read_small(&plan.walked, &wanted.file)?.map(|bytes| {
        let hash = wanted.hash.then(|| *blake3::hash(&bytes).as_bytes());
        (bytes, hash)
    });
    Ok(Fetched { wanted, whole })
}
