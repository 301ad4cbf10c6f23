//! Entry points of the fuzz targets, so that the same code runs in a plain test. Not part of the
//! API.

use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_io::{MemorySource, usize_from};
use forerun_vfs::{
    Error, FileSystem, History, OpenWith, Place, Verifier, Walk, WalkEntry, exercise,
};

use crate::archive::Zip;

pub mod maker;

pub use maker::seeds;

/// Length of the members of a seed that are longer than a block.
const LARGE: u64 = 80 << 10;

/// Opens `bytes` as an archive, exercises the whole driver, and decodes its blocks. Returns the
/// errors.
pub fn walk(bytes: &[u8]) -> Vec<Error> {
    let mut with = OpenWith::new(Arc::new(MemorySource::new(bytes)));
    with.limits = limits();
    let mut errors = Vec::new();
    for rescue in [false, true] {
        with.rescue = rescue;
        match Zip::open_with(&with) {
            Ok(fs) => {
                errors.extend(exercise::all(&fs, &with.limits));
                decode(&fs, bytes, &with, &mut errors);
            }
            Err(error) => errors.push(error),
        }
    }
    errors
}

/// Returns limits under which every input takes milliseconds, and long members are divided into
/// spans.
#[must_use]
pub fn limits() -> forerun_vfs::Limits {
    let mut limits = exercise::limits();
    limits.block_len = 64 << 10;
    limits.stream_bytes = 1 << 20;
    limits
}

/// Decodes the blocks of all files, so that their CRC-32 is compared.
fn decode(fs: &Zip, bytes: &[u8], with: &OpenWith, errors: &mut Vec<Error>) {
    let entries = Walk::new(fs, fs.root(), &with.limits).flatten();
    let is_file = |entry: &WalkEntry| matches!(&entry.metadata, Ok(found) if found.is_file());
    for entry in entries.filter(is_file) {
        let mapped = fs.map(entry.node, 0..u64::MAX, &mut |extent| {
            if let Place::Encoded { block, .. } = extent.place {
                let stored = block.stored();
                let stored = usize_from(stored.start)..usize_from(stored.end);
                let stored = bytes.get(stored).unwrap_or_default();
                let mut decoded = vec![0; usize_from(block.decoded_len.max().into())];
                let history = fs.large.history(&block).unwrap_or_default();
                if block.decode_after(&history, stored, &mut decoded).is_ok() {
                    errors.extend(fs.verify(&block, &decoded).err());
                }
            }
            ControlFlow::Continue(())
        });
        errors.extend(mapped.err());
    }
}
