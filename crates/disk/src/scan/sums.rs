//! Checksums of data after headers, computed while a scan reads the data.

use std::ops::Range;

use forerun_io::usize_from;
use libdeflater::Crc;

use super::piece::Piece;

/// Maximum number of simultaneous checksums. The data of further headers is not verified.
const MOST: usize = 16;

#[derive(Default)]
pub struct Sums(Vec<Pending>);

struct Pending {
    finding: usize,
    left: Range<u64>,
    crc: Crc,
    expected: u32,
}

impl Sums {
    /// Begins a checksum of `range`, which starts in the current chunk or after it.
    pub fn add(&mut self, finding: usize, range: Range<u64>, expected: u32) {
        if self.0.len() < MOST {
            self.0.push(Pending {
                finding,
                left: range,
                crc: Crc::new(),
                expected,
            });
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the bytes of a chunk before `end`. Calls `done` for each completed checksum, with its
    /// finding and whether it matches.
    pub fn feed(&mut self, piece: &Piece<'_>, end: u64, done: &mut dyn FnMut(usize, bool)) {
        self.0.retain_mut(|sum| {
            let end = end.min(sum.left.end);
            let len = usize_from(end.saturating_sub(sum.left.start));
            if let Some(bytes) = piece.from(sum.left.start).get(..len) {
                sum.crc.update(bytes);
                sum.left.start = sum.left.start.max(end);
            }
            let is_done = sum.left.start >= sum.left.end;
            if is_done {
                done(sum.finding, sum.crc.sum() == sum.expected);
            }
            !is_done
        });
    }
}
