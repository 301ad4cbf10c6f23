//! Cuts files into the parts that are stored, and hashes parts that may be duplicates.
//!
//! The packer reads long files itself, block by block.

use forerun_build::{BuildError, ContentHash, RepeatedLens, WalkedFile, read_small};
use forerun_io::usize_from;

use super::options::SquashfsOptions;
use super::plan::Plan;

#[derive(Clone, Copy)]
pub struct Wanted<'t> {
    pub file: WalkedFile<'t>,
    /// Bytes in blocks of the file's own; the rest goes to a fragment.
    pub body_len: u64,
    /// Whether another file's blocks have the same length.
    pub hash_body: bool,
    pub hash_tail: bool,
}

pub struct Fetched<'t> {
    pub wanted: Wanted<'t>,
    /// `None` for a long file.
    pub whole: Option<Whole>,
}

pub struct Whole {
    pub body: Vec<u8>,
    pub body_hash: Option<ContentHash>,
    pub tail: Vec<u8>,
    pub tail_hash: Option<ContentHash>,
}

/// The part lengths of all files: a part of unique length has no duplicate, and need not be hashed.
#[derive(Default)]
pub struct PartLens {
    bodies: RepeatedLens,
    tails: RepeatedLens,
}

impl PartLens {
    /// Counts the part lengths, if the options ask for duplicates.
    pub fn of(plan: &Plan<'_>, options: &SquashfsOptions) -> Self {
        let mut lens = Self::default();
        if options.duplicates {
            for file in &plan.walked.files {
                let body = options.body_len(file.len);
                lens.bodies.add(body);
                lens.tails.add(file.len - body);
            }
        }
        lens
    }

    pub fn wanted<'t>(&self, file: WalkedFile<'t>, options: &SquashfsOptions) -> Wanted<'t> {
        let body_len = options.body_len(file.len);
        let may_repeat = |lens: &RepeatedLens, len| len > 0 && lens.has(len);
        Wanted {
            file,
            body_len,
            hash_body: may_repeat(&self.bodies, body_len),
            hash_tail: may_repeat(&self.tails, file.len - body_len),
        }
    }
}

/// Reads a short file, and hashes the parts that may be duplicates.
pub fn fetch<'t>(plan: &Plan<'t>, wanted: Wanted<'t>) -> Result<Fetched<'t>, BuildError> {
    let whole = read_small(&plan.walked, &wanted.file)?.map(|mut body| {
        let tail = match usize_from(wanted.body_len) {
            // The most frequent case copies no bytes.
            0 => std::mem::take(&mut body),
            len => body.split_off(len.min(body.len())),
        };
        let hash = |wanted: bool, bytes: &[u8]| wanted.then(|| *blake3::hash(bytes).as_bytes());
        Whole {
            body_hash: hash(wanted.hash_body, &body),
            tail_hash: hash(wanted.hash_tail, &tail),
            body,
            tail,
        }
    });
    Ok(Fetched { wanted, whole })
}
