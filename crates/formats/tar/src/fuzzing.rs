//! Entry points of the fuzz targets, so that the same code runs in a plain test. Not part of the API.

use forerun_io::MemorySource;
use forerun_vfs::{Error, exercise};

use crate::Tar;

pub use forerun_vfs::exercise::limits;

/// Opens `bytes` as an archive and exercises the whole driver. Returns the errors.
pub fn walk(bytes: &[u8]) -> Vec<Error> {
    let source = MemorySource::new(bytes);
    let mut errors = Vec::new();
    for rescue in [false, true] {
        match Tar::open_with(&source, &limits(), rescue) {
            Ok(fs) => errors.extend(exercise::all(&fs, &limits())),
            Err(error) => errors.push(error),
        }
    }
    errors
}
