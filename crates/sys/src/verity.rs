//! fs-verity: the digest with which the kernel verifies all reads of a file.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::checked;

/// `FS_VERITY_HASH_ALG_SHA256` of `linux/fsverity.h`.
const SHA256: u16 = 1;
const SHA256_LEN: u16 = 32;
/// `FS_IOC_MEASURE_VERITY`: `_IOWR('f', 134, struct fsverity_digest)`, with the length of only the
/// head of the structure.
#[allow(clippy::as_conversions)] // The type of requests, all of 32 bits, differs between the C libraries.
const MEASURE: libc::Ioctl = 0xc004_6686_u32 as libc::Ioctl;

/// `struct fsverity_digest`, with room for a SHA-256 digest.
#[repr(C)]
struct FsverityDigest {
    algorithm: u16,
    size: u16,
    digest: [u8; 32],
}

/// Returns the fs-verity digest of a file if the kernel protects it with SHA-256. The contents of
/// such a file cannot change, and reads of corrupted bytes fail.
///
/// # Errors
/// The errors of ioctl(2), except for those that mean that the file has no digest of that length.
pub fn sha256(file: impl AsFd) -> io::Result<Option<[u8; 32]>> {
    let mut measured = FsverityDigest {
        algorithm: 0,
        size: SHA256_LEN,
        digest: [0; 32],
    };
    let number = file.as_fd().as_raw_fd();
    // SAFETY: the kernel writes the head and at most `size` bytes of digest, for which `measured`
    // has room. All fields are integers, so any bytes are valid, and `measured` outlives the call.
    let asked = checked(unsafe { libc::ioctl(number, MEASURE, &raw mut measured) });
    match asked {
        Ok(_) if (measured.algorithm, measured.size) == (SHA256, SHA256_LEN) => {
            Ok(Some(measured.digest))
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
        assert_eq!(sha256(tempfile::tempfile().unwrap()).unwrap(), None);
        let (reader, _writer) = io::pipe().unwrap();
        assert_eq!(sha256(reader).unwrap(), None);
    }
}
