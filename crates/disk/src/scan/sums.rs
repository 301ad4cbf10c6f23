//! Checksums of data after headers, computed while a scan passes the data.

use std::ops::Range;

use forerun_io::usize_from;
use libdeflater::Crc;

use super::piece::Piece;

/// Most checksums at a time. The data of further headers is not verified.
const MOST: usize = 16;

/// Checksums that are being computed.
#[derive(Default)]
pub struct Sums(Vec<Pending>);

struct Pending {
    finding: usize,
    left: Range<u64>,
    crc: Crc,
    expected: u32,
}

impl Sums {
    /// Begins a checksum of `range`, which starts in the current piece or after it.
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

    /// Adds the bytes of a piece before `end`. Calls `done` with the finding of each checksum that is complete, and
    /// whether it is right.
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
