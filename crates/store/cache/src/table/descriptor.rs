//! The descriptor of fs-verity, whose digest is the file digest.

use crate::Digest;
use crate::geometry::Geometry;

/// Length of `struct fsverity_descriptor` without a signature.
const LEN: usize = 256;
/// `FS_VERITY_HASH_ALG_SHA256`.
const SHA256: u8 = 1;
const VERSION: u8 = 1;

/// Returns the fs-verity digest of an image. `top` is the hash of its top hash block or only chunk;
/// zeros if the image is empty.
pub(super) fn file_digest(geometry: &Geometry, top: &Digest) -> Digest {
    let mut bytes = [0; LEN];
    let log_blocksize = geometry.chunk_size().trailing_zeros().to_le_bytes()[0];
    bytes[..3].copy_from_slice(&[VERSION, SHA256, log_blocksize]);
    // Byte 3 is the length of the salt, bytes 4..8 are that of the signature.
    bytes[8..16].copy_from_slice(&geometry.len().to_le_bytes());
    bytes[16..48].copy_from_slice(&top.0);
    Digest::of(&bytes)
}
