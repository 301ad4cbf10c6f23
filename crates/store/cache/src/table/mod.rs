//! The chunk table: a digest for every chunk, and a root digest over all of them.
//!
//! It is the Merkle tree of fs-verity (SHA-256, no salt) with the chunk size as block size. The
//! kernel and `fsverity digest` call its root the file digest. A part of the table can be verified
//! without the rest: a hash block of 64 KiB covers 128 MiB of the image. The kernel's
//! Documentation/filesystems/fsverity.rst describes the format.

mod build;
mod descriptor;
mod verified;

pub use build::{ChunkTable, TableBuilder};
pub use verified::VerifiedTable;

use sha2::{Digest as _, Sha256};

use crate::Digest;
use crate::geometry::Geometry;

/// Returns the digest of a block padded with zeros to the chunk size.
pub(crate) fn padded_digest(geometry: &Geometry, bytes: &[u8]) -> Digest {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut hasher = Sha256::new();
    hasher.update(bytes);
    let size = forerun_io::usize_from(geometry.size());
    let mut missing = size - bytes.len();
    while missing > 0 {
        let step = missing.min(ZEROS.len());
        hasher.update(ZEROS.get(..step).unwrap_or(&ZEROS));
        missing -= step;
    }
    Digest(hasher.finalize().into())
}
