//! Pieces of a file that follow each other, written with one call.
//!
//! Blocks of an image end anywhere in a page of the output. Written one by one, each costs a call, and
//! the page it ends in is looked up, locked and marked twice.

use std::fs::File;
use std::io::{self, IoSlice};

use forerun_engine::Data;
use forerun_io::u64_from;
use rustix::io::{Errno, pwritev};

use crate::content::CHUNK;

/// Pieces held at the most: far fewer than a call takes.
const PIECES: usize = 64;

/// What is to be written next.
pub struct Gather<'f> {
    file: &'f File,
    /// Where the first piece goes.
    start: u64,
    bytes: u64,
    pieces: Vec<Data>,
}

impl<'f> Gather<'f> {
    pub const fn new(file: &'f File) -> Self {
        Self {
            file,
            start: 0,
            bytes: 0,
            pieces: Vec::new(),
        }
    }

    /// Adds the piece that goes to `at`. Writes what was there before where the piece does not follow
    /// it, or there is enough of it.
    ///
    /// # Errors
    /// Those of the write.
    pub fn add(&mut self, at: u64, piece: Data) -> io::Result<()> {
        let follows = at == self.start.saturating_add(self.bytes);
        if !follows || self.bytes >= CHUNK || self.pieces.len() >= PIECES {
            self.write()?;
        }
        if self.pieces.is_empty() {
            self.start = at;
        }
        self.bytes = self.bytes.saturating_add(u64_from(piece.len()));
        self.pieces.push(piece);
        Ok(())
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// Those of the write.
    pub fn write(&mut self) -> io::Result<()> {
        let mut slices: Vec<_> = self
            .pieces
            .iter()
            .map(|piece| IoSlice::new(piece))
            .collect();
        let (mut left, mut at) = (&mut slices[..], self.start);
        while !left.is_empty() {
            match pwritev(self.file, left, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    IoSlice::advance_slices(&mut left, written);
                    at = at.saturating_add(u64_from(written));
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.pieces.clear();
        (self.start, self.bytes) = (at, 0);
        Ok(())
    }
}
