//! The digest of a whole image, for formats that name files by digests: the fs-verity digest that
//! `fsverity digest` prints and the kernel measures.

use std::io::{self, Read};

use forerun_io::{ReadAt, u64_from, usize_from};
use forerun_vfs::{Corrupt, Error, Format, Result};

use crate::registry::object_formats;

#[derive(Debug, thiserror::Error)]
#[error("the digest of the image is {found}, not {expected}")]
struct WrongDigest {
    expected: String,
    found: String,
}

/// Computes the digests of an image from all of its bytes, by each hash that its format knows. If a number of
/// digits is given, only those of that length. Returns none for formats without digests.
///
/// # Errors
/// [`Error::Io`] if it cannot be read.
pub fn measure(format: &Format, source: &dyn ReadAt, digits: Option<usize>) -> Result<Vec<String>> {
    let formats = object_formats().iter();
    let Some(found) = formats.copied().find(|row| row.format == format.name) else {
        return Ok(Vec::new());
    };
    let mut stream = Stream { source, at: 0 };
    let digests = (found.digests)(&mut stream, digits);
    digests.map_err(|error| Error::io(stream.at, 0, error))
}

/// Compares the digest of an image with the expected one, in hexadecimal digits.
///
/// # Errors
/// [`Error::Corrupt`] if they differ, [`Error::Unsupported`] for formats without digests, and those
/// of [`measure`].
pub fn check(format: &Format, source: &dyn ReadAt, expected: &str) -> Result<()> {
    let digests = measure(format, source, Some(expected.len()))?;
    let expected = expected.to_ascii_lowercase();
    if digests.contains(&expected) {
        return Ok(());
    }
    let mut by_same_hash = digests
        .into_iter()
        .filter(|found| found.len() == expected.len());
    let Some(found) = by_same_hash.next() else {
        let name = format.name;
        return Err(Error::Unsupported(format!("the digest of a {name} image")));
    };
    Err(Corrupt::new(format.name, None, 0, WrongDigest { expected, found }).into())
}

struct Stream<'s> {
    source: &'s dyn ReadAt,
    at: u64,
}

impl Read for Stream<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = usize_from(self.source.len() - self.at);
        let len = left.min(out.len());
        self.source.read_exact_at(self.at, &mut out[..len])?;
        self.at += u64_from(len);
        Ok(len)
    }
}
