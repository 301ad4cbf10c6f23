//! Assembles whole chunks from pieces of any length.

use std::collections::HashSet;
use std::ops::Range;

/// Collects the missing bytes of a range, one chunk at a time.
pub struct Assembly {
    chunk_len: u64,
    /// Offset of the next missing byte.
    at: u64,
    end: u64,
    /// The bytes of the current chunk that have arrived.
    buffer: Vec<u8>,
    senders: HashSet<usize>,
}

impl Assembly {
    /// Creates an assembly of `range`, whose start must be a multiple of `chunk_len`.
    pub fn new(chunk_len: u32, range: Range<u64>) -> Self {
        Self {
            chunk_len: u64::from(chunk_len).max(1),
            at: range.start,
            end: range.end,
            buffer: Vec::new(),
            senders: HashSet::new(),
        }
    }

    pub const fn missing(&self) -> Range<u64> {
        self.at..self.end
    }

    /// Adds the part of `bytes` that belongs to the current chunk. Returns the rest of `bytes`, and
    /// the chunk with its offset if it is now complete.
    pub fn push<'a>(
        &mut self,
        sender: usize,
        bytes: &'a [u8],
    ) -> (&'a [u8], Option<(u64, Vec<u8>)>) {
        let start = self.at - forerun_io::u64_from(self.buffer.len());
        let end = (start + self.chunk_len).min(self.end);
        let wanted = forerun_io::usize_from(end - self.at);
        let (mine, rest) = bytes.split_at(wanted.min(bytes.len()));
        if self.buffer.capacity() == 0 {
            self.buffer.reserve_exact(wanted);
        }
        self.buffer.extend_from_slice(mine);
        self.at += forerun_io::u64_from(mine.len());
        self.senders.insert(sender);
        let whole =
            (self.at == end && end > start).then(|| (start, std::mem::take(&mut self.buffer)));
        (rest, whole)
    }

    /// Accepts the last complete chunk and begins the next one.
    pub fn accept(&mut self) {
        self.senders.clear();
    }

    /// Marks the wrong chunk at `start` as missing again. Returns the mirror that sent it, if all
    /// its bytes came from one mirror.
    pub fn reject(&mut self, start: u64) -> Option<usize> {
        self.at = start;
        self.buffer = Vec::new();
        let mut senders = self.senders.drain();
        let first = senders.next();
        let more = senders.next();
        drop(senders);
        self.senders.clear();
        first.filter(|_| more.is_none())
    }

    pub const fn pending(&self) -> usize {
        self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn chunks_come_out_whole_whatever_goes_in() {
        for step in 1..9 {
            let bytes: Vec<u8> = (0..10).collect();
            let mut assembly = Assembly::new(4, 4..14);
            let mut out = Vec::new();
            for piece in bytes.chunks(step) {
                let mut rest = piece;
                while !rest.is_empty() {
                    let (left, whole) = assembly.push(0, rest);
                    rest = left;
                    if let Some(chunk) = whole {
                        assembly.accept();
                        out.push(chunk);
                    }
                }
            }
            let expected = [(4, &bytes[..4]), (8, &bytes[4..8]), (12, &bytes[8..])];
            assert_eq!(out, expected.map(|(at, bytes)| (at, bytes.to_vec())));
            assert!(assembly.missing().is_empty());
        }
    }

    #[test]
    fn wrong_chunks_are_missing_again_and_blamed_on_one_sender_only() {
        let mut assembly = Assembly::new(4, 0..8);
        let (_, whole) = assembly.push(1, &[0; 4]);
        assert_eq!(assembly.reject(whole.unwrap().0), Some(1));
        assert_eq!(assembly.missing(), 0..8);
        assembly.push(0, &[0; 2]);
        let (_, whole) = assembly.push(1, &[0; 2]);
        assert_eq!(assembly.reject(whole.unwrap().0), None);
    }
}
