//! Contents on their way from a reading thread to the consumer.
//!
//! Small files are copied from their blocks into a shared buffer: otherwise contents that wait for
//! the consumer would keep whole blocks in memory, and an allocation for each file costs more than
//! the copy. They are passed on together, so that threads seldom wait for each other.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::contents::Bytes;
use crate::errors::Result;

/// Bytes of small files that are passed on together. The last file may exceed it.
const TOGETHER: usize = 128 << 10;
/// Most parts passed on together.
const PARTS: usize = 256;
/// Longest time that contents wait for others.
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

    /// Adds a part of a block, of which `wanted` bytes are read in total. Copies the part if that
    /// is less than half of the memory that it would keep.
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

    /// Returns whether the parts should be passed on now.
    pub fn is_ready(&self) -> bool {
        self.copied.len() >= TOGETHER
            || self.parts.len() >= PARTS
            || self.since.elapsed() >= LONGEST
    }

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

/// Returns whether `wanted` is less than half of the memory that the data keeps.
fn is_small_of(wanted: u64, kept: usize) -> bool {
    usize::try_from(wanted).is_ok_and(|wanted| wanted < kept / 2)
}
