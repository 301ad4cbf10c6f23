//! fs-verity: the digest with which the kernel verifies all reads of a file.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::checked;

/// `FS_VERITY_HASH_ALG_SHA256` and `_SHA512` of `linux/fsverity.h`, and the lengths of their digests.
const ALGORITHMS: [(u16, u16); 2] = [(1, 32), (2, 64)];
const DIGEST_MAX: u16 = 64;
/// `FS_IOC_MEASURE_VERITY`: `_IOWR('f', 134, struct fsverity_digest)`. The number contains the
/// length of the struct without the digest at its end.
#[allow(clippy::as_conversions)] // The type of requests, all of 32 bits, differs between the C libraries.
const MEASURE: libc::Ioctl = 0xc004_6686_u32 as libc::Ioctl;

/// `struct fsverity_digest`, with room for the longest digest.
#[repr(C)]
struct FsverityDigest {
    algorithm: u16,
    size: u16,
    digest: [u8; 64],
}

/// Returns the fs-verity digest by which the kernel protects a file: 32 bytes of SHA-256 or 64 of SHA-512. The
/// contents of such a file cannot change, and reads of other bytes fail.
///
/// # Errors
/// The errors of ioctl(2), except those that say that the file has no digest.
pub fn digest(file: impl AsFd) -> io::Result<Option<Vec<u8>>> {
    let mut measured = FsverityDigest {
        algorithm: 0,
        size: DIGEST_MAX,
        digest: [0; 64],
    };
    let number = file.as_fd().as_raw_fd();
    // SAFETY: the kernel writes the head and at most `size` bytes of digest, for which `measured`
    // has room. All fields are integers, so any bytes are valid, and `measured` outlives the call.
    let asked = checked(unsafe { libc::ioctl(number, MEASURE, &raw mut measured) });
    match asked {
        Ok(_) if ALGORITHMS.contains(&(measured.algorithm, measured.size)) => {
            Ok(Some(measured.digest[..usize::from(measured.size)].to_vec()))
        }
        Ok(_) => Ok(None),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENODATA | libc::ENOTTY | libc::EOPNOTSUPP | libc::EOVERFLOW) => Ok(None),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_fs_verity_has_no_digest() {
        assert_eq!(digest(tempfile::tempfile().unwrap()).unwrap(), None);
        let (reader, _writer) = io::pipe().unwrap();
        assert_eq!(digest(reader).unwrap(), None);
    }
}
