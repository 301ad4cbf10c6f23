//! Marks on chunks: a reader that passes one triggers the next readahead window.
//!
//! Reads of present chunks take no lock, so marks are the only trace of how far a reader has come.
//! Most reads look for a mark with a single load.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use forerun_io::usize_from;

/// One bit for each chunk.
#[derive(Debug)]
pub struct Marks {
    words: Box<[AtomicU64]>,
}

impl Marks {
    pub fn new(chunks: u64) -> Self {
        let words = usize_from(chunks.div_ceil(64));
        Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Marks a chunk. Does nothing past the end of the image.
    pub fn set(&self, chunk: u64) {
        if let Some(word) = self.word(chunk) {
            word.fetch_or(bit(chunk), Ordering::Relaxed);
        }
    }

    pub fn all(&self, chunks: &Range<u64>) -> bool {
        chunks.clone().all(|chunk| self.any(&(chunk..chunk + 1)))
    }

    pub fn any(&self, chunks: &Range<u64>) -> bool {
        let mut chunk = chunks.start;
        while chunk < chunks.end {
            let Some(word) = self.word(chunk) else {
                return false;
            };
            let next = (chunk / 64 + 1) * 64;
            let mut wanted = u64::MAX << (chunk % 64);
            if chunks.end < next {
                wanted &= bit(chunks.end).wrapping_sub(1);
            }
            if word.load(Ordering::Relaxed) & wanted != 0 {
                return true;
            }
            chunk = next;
        }
        false
    }

    pub fn clear(&self, chunks: &Range<u64>) {
        for chunk in chunks.clone() {
            if let Some(word) = self.word(chunk) {
                word.fetch_and(!bit(chunk), Ordering::Relaxed);
            }
        }
    }

    fn word(&self, chunk: u64) -> Option<&AtomicU64> {
        self.words.get(usize_from(chunk / 64))
    }
}

const fn bit(chunk: u64) -> u64 {
    1 << (chunk % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_where_they_were_set() {
        let marks = Marks::new(300);
        for chunk in [0, 63, 64, 200, 299, 5000] {
            marks.set(chunk);
        }
        for (chunks, expected) in [
            (0..1, true),
            (1..63, false),
            (1..64, true),
            (65..200, false),
            (65..201, true),
            (201..299, false),
            (201..300, true),
            (4999..5001, false),
            (7..7, false),
        ] {
            assert_eq!(marks.any(&chunks), expected, "{chunks:?}");
        }
        assert!(marks.all(&(63..65)) && marks.all(&(7..7)) && !marks.all(&(62..65)));
        marks.clear(&(0..300));
        assert!(!marks.any(&(0..300)));
    }
}
