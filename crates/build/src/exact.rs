//! Reads contents that must have the length that the tree says.
//!
//! A host file may have changed since the scan, and by then a writer has fixed the layout. So fewer
//! or more bytes are an error, which names the file. Small files are read whole, with three system
//! calls each: open, one read that asks for a byte more than expected, close. Long files are read
//! in parts.

use std::io::{self, Read};

use forerun_io::{u64_from, usize_from};

use super::content::Content;
use super::stream::ContentStream;
use super::tree::BuildError;

/// The reason why contents could not be read, or differ in length from the tree.
#[derive(Debug)]
pub enum Unreadable {
    Io(io::Error),
    Shorter,
    Longer,
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Unreadable {
    /// Returns the error for the file at `path`, which had `len` bytes when it was scanned.
    #[must_use]
    pub fn of(self, path: Vec<u8>, len: u64) -> BuildError {
        let than = format!("than the {len} bytes it had when it was scanned");
        BuildError::Content {
            path,
            reason: match self {
                Self::Io(error) => error.to_string(),
                Self::Shorter => format!("the file is shorter {than}"),
                Self::Longer => format!("the file is longer {than}"),
            },
        }
    }
}

/// Reads all of the contents, which must have `len` bytes.
pub fn read_whole(content: &Content, len: u64) -> Result<Vec<u8>, Unreadable> {
    let expected = usize_from(len);
    let mut bytes = vec![0; expected + 1];
    let mut content = content.open(len)?;
    let got = read_up_to(&mut content, &mut bytes)?;
    bytes.truncate(got);
    match got.cmp(&expected) {
        std::cmp::Ordering::Equal => Ok(bytes),
        std::cmp::Ordering::Less => Err(Unreadable::Shorter),
        std::cmp::Ordering::Greater => Err(Unreadable::Longer),
    }
}

/// Reads until `out` is full or the contents end.
///
/// A read of one byte less than `out` holds has the expected length. It ends the loop without
/// another system call, because a short read of a regular file ends at its end.
fn read_up_to(content: &mut dyn Read, out: &mut [u8]) -> io::Result<usize> {
    let expected = out.len() - 1;
    let mut filled = 0;
    while filled < out.len() {
        match content.read(&mut out[filled..]) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if filled == expected {
            break;
        }
    }
    Ok(filled)
}

/// Long contents, read in parts, that must have exactly the length in the tree.
pub struct ExactStream {
    content: Box<dyn ContentStream>,
    left: u64,
}

impl ExactStream {
    pub fn open(content: &Content, len: u64) -> Result<Self, Unreadable> {
        Ok(Self {
            content: content.open(len)?,
            left: len,
        })
    }

    /// Reads the next `len` bytes, or all that remain. After the last bytes, checks that no more
    /// follow.
    pub fn read(&mut self, len: u64) -> Result<Vec<u8>, Unreadable> {
        let mut bytes = vec![0; usize_from(len.min(self.left))];
        match self.content.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(Unreadable::Shorter);
            }
            Err(error) => return Err(error.into()),
        }
        self.passed(u64_from(bytes.len()))?;
        Ok(bytes)
    }

    /// Returns the length of the hole at the current position. [`skip`](Self::skip) passes it at no
    /// cost.
    pub fn hole(&mut self) -> Result<u64, Unreadable> {
        Ok(self.content.hole()?.min(self.left))
    }

    /// Skips `len` bytes of the hole that [`hole`](Self::hole) has returned. After the last bytes,
    /// checks that no more follow.
    pub fn skip(&mut self, len: u64) -> Result<(), Unreadable> {
        let len = len.min(self.hole()?);
        self.content.skip(len);
        self.passed(len)
    }

    fn passed(&mut self, len: u64) -> Result<(), Unreadable> {
        self.left -= len;
        if self.left == 0 && read_up_to(&mut self.content, &mut [0; 1])? > 0 {
            return Err(Unreadable::Longer);
        }
        Ok(())
    }

    #[must_use]
    pub const fn left(&self) -> u64 {
        self.left
    }
}
