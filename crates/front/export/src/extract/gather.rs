//! Combines consecutive ranges of a file into one write.
//!
//! Blocks of an image end anywhere in an output page. Writing each with its own call would look up,
//! lock and mark the page at the boundary twice.

use std::fs::File;
use std::io::{self, IoSlice};

use forerun_engine::Data;
use forerun_io::u64_from;
use rustix::io::{Errno, pwritev};

use crate::content::CHUNK;

/// Maximum number of ranges per write, well below the limit of the system call.
const PIECES: usize = 64;

pub struct Gather<'f> {
    file: &'f File,
    /// File offset of the first range.
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

    /// Adds data for offset `at`. First writes the pending data if `at` does not continue it or
    /// there is enough.
    pub fn add(&mut self, at: u64, piece: Data) -> io::Result<()> {
        let follows = at == self.start + self.bytes;
        if !follows || self.bytes >= CHUNK || self.pieces.len() >= PIECES {
            self.write()?;
        }
        if self.pieces.is_empty() {
            self.start = at;
        }
        self.bytes += u64_from(piece.len());
        self.pieces.push(piece);
        Ok(())
    }

    pub fn write(&mut self) -> io::Result<()> {
        let slices = self.pieces.iter().map(|piece| IoSlice::new(piece));
        let at = write_all(slices.collect(), self.start, |slices, at| {
            pwritev(self.file, slices, at)
        })?;
        self.pieces.clear();
        (self.start, self.bytes) = (at, 0);
        Ok(())
    }
}

/// Writes all slices in as many calls as needed. Returns the end offset.
fn write_all(
    mut slices: Vec<IoSlice<'_>>,
    mut at: u64,
    mut write: impl FnMut(&[IoSlice<'_>], u64) -> Result<usize, Errno>,
) -> io::Result<u64> {
    let mut left = &mut slices[..];
    // Skip empty slices: a write of empty slices would return 0, which means a full disk here.
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match write(left, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                IoSlice::advance_slices(&mut left, written);
                at += u64_from(written);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write that accepts at most `most` bytes per call, with every third call interrupted.
    fn written(pieces: &[&[u8]], most: usize) -> io::Result<Vec<u8>> {
        let (mut out, mut calls) = (vec![0; 3], 0);
        let slices = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let end = write_all(slices, 3, |slices, at| {
            calls += 1;
            if calls % 3 == 0 {
                return Err(Errno::INTR);
            }
            assert_eq!(at, u64_from(out.len()), "where the last call ended");
            let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            let len = bytes.len().min(most);
            out.extend(&bytes[..len]);
            Ok(len)
        })?;
        assert_eq!(end, u64_from(out.len()));
        Ok(out.split_off(3))
    }

    #[test]
    fn writes_that_are_cut_short_go_on_where_they_ended() {
        let pieces: [&[u8]; 5] = [b"", b"one", b"two", b"", b"three"];
        for most in 1..20 {
            assert_eq!(written(&pieces, most).unwrap(), pieces.concat(), "{most}");
        }
        assert_eq!(written(&[b""], 1).unwrap(), b"");
        assert_eq!(written(&[], 1).unwrap(), b"");
        let full = written(&pieces, 0).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WriteZero);
    }
}
