//! Contents on their way from a thread to the taker.
//!
//! Small files are copied out of their blocks into memory that they share: what waits for the taker would keep
//! whole blocks, and an allocation for each file costs more than the copy. They are handed over together, so that
//! the threads seldom wait for each other.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::contents::Bytes;
use crate::errors::Result;

/// Bytes of small files that are handed over together at the most, but for a last one.
const TOGETHER: usize = 128 << 10;
/// Parts that are handed over together at the most.
const PARTS: usize = 256;
/// The longest time that contents are held back for others.
const LONGEST: Duration = Duration::from_millis(2);

/// Parts of files that one thread has read, with their numbers.
pub struct Gathered {
    parts: Vec<(usize, Piece)>,
    copied: Vec<u8>,
    since: Instant,
}

enum Piece {
    Alone(Result<Bytes>),
    Copied(Range<usize>),
}

impl Gathered {
    pub fn new() -> Self {
        Self {
            parts: Vec::new(),
            copied: Vec::new(),
            since: Instant::now(),
        }
    }

    /// Adds a part of a block of which `wanted` bytes are read in all. Copies it where these are less than half of
    /// what they keep in memory.
    pub fn add(&mut self, number: usize, read: Result<Bytes>, wanted: u64) {
        let part = match read {
            Ok(Bytes::Data(data)) if is_small_of(wanted, data.kept()) => {
                if self.copied.capacity() == 0 {
                    self.copied.reserve_exact(TOGETHER.max(data.len()));
                }
                let start = self.copied.len();
                self.copied.extend_from_slice(&data);
                Piece::Copied(start..self.copied.len())
            }
            other => Piece::Alone(other),
        };
        self.parts.push((number, part));
    }

    /// Returns whether it is time to hand the parts over.
    pub fn is_ready(&self) -> bool {
        self.copied.len() >= TOGETHER
            || self.parts.len() >= PARTS
            || self.since.elapsed() >= LONGEST
    }

    /// Takes the parts out.
    pub fn take(&mut self) -> impl Iterator<Item = (usize, Result<Bytes>)> + use<> {
        let mut copied = std::mem::take(&mut self.copied);
        copied.shrink_to_fit();
        let copied = Arc::new(copied);
        self.since = Instant::now();
        let parts = std::mem::take(&mut self.parts);
        parts.into_iter().map(move |(number, part)| match part {
            Piece::Alone(read) => (number, read),
            Piece::Copied(range) => (number, Ok(Bytes::Copied(Arc::clone(&copied), range))),
        })
    }
}

/// Returns whether bytes are less than half of what they keep in memory.
fn is_small_of(wanted: u64, kept: usize) -> bool {
    usize::try_from(wanted).is_ok_and(|wanted| wanted < kept / 2)
}
