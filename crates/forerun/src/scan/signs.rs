//! The magic numbers that a scan looks for, all at once and at every byte.

use forerun_vfs::Format;

use super::headers;
use crate::formats;

/// Pairs of bytes.
const PAIRS: usize = 1 << 16;

/// The meaning of a magic number.
#[derive(Clone, Copy, Debug)]
pub enum Meaning {
    Image(&'static Format),
    Uimage,
    Trx,
}

/// A magic number, `offset` bytes behind the start of what it announces.
#[derive(Clone, Copy, Debug)]
pub struct Sign {
    pub offset: u64,
    pub meaning: Meaning,
    bytes: &'static [u8],
}

/// All magic numbers.
pub struct Signs {
    all: Vec<Sign>,
    /// Whether a magic number starts with a pair of bytes.
    pairs: Vec<bool>,
}

impl Signs {
    /// Collects those of all formats.
    pub fn new() -> Self {
        let images = formats().iter().flat_map(|format| {
            let magics = format.magics.iter();
            magics.map(|magic| (magic.offset, magic.bytes, Meaning::Image(format)))
        });
        let headers = [
            (0, headers::UIMAGE, Meaning::Uimage),
            (0, headers::TRX, Meaning::Trx),
        ];
        let all: Vec<_> = images
            .chain(headers)
            .map(|(offset, bytes, meaning)| Sign {
                offset,
                meaning,
                bytes,
            })
            .collect();
        let mut pairs = vec![false; PAIRS];
        for sign in &all {
            if let Some(is_first) = pair(sign.bytes).and_then(|pair| pairs.get_mut(pair)) {
                *is_first = true;
            }
        }
        Self { all, pairs }
    }

    /// Returns the first position from `from` on at which a magic number may be.
    pub fn next(&self, bytes: &[u8], from: usize) -> Option<usize> {
        let mut windows = bytes.get(from..)?.windows(2);
        let is_first = |window| pair(window).and_then(|pair| self.pairs.get(pair)) == Some(&true);
        windows.position(is_first).map(|at| from + at)
    }

    /// Returns the magic numbers that `bytes` start with.
    pub fn at(&self, bytes: &[u8]) -> impl Iterator<Item = Sign> {
        let found = self.all.iter().filter(|sign| bytes.starts_with(sign.bytes));
        found.copied()
    }
}

fn pair(bytes: &[u8]) -> Option<usize> {
    let pair = bytes.first_chunk()?;
    Some(u16::from_le_bytes(*pair).into())
}
