//! One bit for each chunk, read without a lock.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use forerun_io::{u64_from, usize_from};

/// A bitmap of atomic words: reading a bit costs one load.
#[derive(Debug)]
pub(crate) struct Bitmap {
    words: Box<[AtomicU64]>,
    len: u64,
}

impl Bitmap {
    pub(crate) fn new(len: u64) -> Self {
        let words = usize_from(len.div_ceil(64));
        Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            len,
        }
    }

    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the bit is set; false past the end. Synchronises with the thread that set
    /// the bit: all of its earlier writes are visible.
    pub(crate) fn get(&self, bit: u64) -> bool {
        let word = self.words.get(usize_from(bit / 64));
        word.is_some_and(|word| word.load(Ordering::Acquire) & mask(bit) != 0)
    }

    pub(crate) fn all(&self, range: Range<u64>) -> bool {
        let mut bit = range.start;
        while bit < range.end {
            if bit.is_multiple_of(64)
                && range.end - bit >= 64
                && let Some(word) = self.words.get(usize_from(bit / 64))
            {
                if word.load(Ordering::Acquire) != u64::MAX {
                    return false;
                }
                bit += 64;
                continue;
            }
            if !self.get(bit) {
                return false;
            }
            bit += 1;
        }
        true
    }

    /// Sets the bit. Returns whether it was clear.
    pub(crate) fn set(&self, bit: u64) -> bool {
        let word = self.words.get(usize_from(bit / 64));
        bit < self.len
            && word.is_some_and(|word| word.fetch_or(mask(bit), Ordering::AcqRel) & mask(bit) == 0)
    }

    /// Sets every bit of word `index` that is set in `bits`. Ignores bits past the end.
    pub(crate) fn set_word(&self, index: u64, bits: u64) {
        let start = index * 64;
        let exist = match self.len.saturating_sub(start) {
            0 => 0,
            left @ 1..64 => u64::MAX >> (64 - left),
            _ => u64::MAX,
        };
        if let Some(word) = self.words.get(usize_from(index)) {
            word.fetch_or(bits & exist, Ordering::AcqRel);
        }
    }

    /// Sets every bit that is set in another bitmap of the same length.
    pub(crate) fn copy_from(&self, other: &Self) {
        for (index, word) in (0..).zip(&other.words) {
            self.set_word(index, word.load(Ordering::Acquire));
        }
    }

    /// Clears the bit. Returns whether it was set.
    pub(crate) fn clear(&self, bit: u64) -> bool {
        let word = self.words.get(usize_from(bit / 64));
        word.is_some_and(|word| word.fetch_and(!mask(bit), Ordering::AcqRel) & mask(bit) != 0)
    }

    pub(crate) fn count(&self) -> u64 {
        let ones = |word: &AtomicU64| u64::from(word.load(Ordering::Acquire).count_ones());
        self.words.iter().map(ones).sum()
    }

    /// Returns the runs inside `range` of bits equal to `wanted`.
    pub(crate) fn runs(&self, range: Range<u64>, wanted: bool) -> Vec<Range<u64>> {
        let mut runs = Vec::new();
        let mut bit = range.start;
        let end = range.end.min(self.len);
        while bit < end {
            let word = self.words.get(usize_from(bit / 64));
            let word = word.map_or(0, |word| word.load(Ordering::Acquire));
            let word_end = ((bit / 64 + 1) * 64).min(end);
            let uniform = if wanted { 0 } else { u64::MAX };
            if word == uniform {
                bit = word_end;
                continue;
            }
            for bit in bit..word_end {
                if (word & mask(bit) != 0) == wanted {
                    crate::runs::push(&mut runs, bit..bit + 1);
                }
            }
            bit = word_end;
        }
        runs
    }

    /// Returns the memory used, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        u64_from(self.words.len()) * 8
    }
}

const fn mask(bit: u64) -> u64 {
    1 << (bit % 64)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_their_runs() {
        let bits = Bitmap::new(200);
        for bit in [0, 1, 63, 64, 65, 130, 199] {
            assert!(bits.set(bit));
            assert!(!bits.set(bit));
        }
        assert!(!bits.set(200) && !bits.get(200) && !bits.get(u64::MAX));
        assert_eq!(bits.count(), 7);
        assert_eq!(bits.runs(0..200, true), [0..2, 63..66, 130..131, 199..200]);
        assert_eq!(bits.runs(60..70, false), [60..63, 66..70]);
        assert_eq!(bits.runs(199..1000, true), [199..200]);
        assert!(bits.all(63..66) && !bits.all(63..67) && bits.all(5..5));
        assert!(bits.clear(64) && !bits.clear(64));
        assert!(!bits.all(63..66));
        (0..200).for_each(|bit| {
            bits.set(bit);
        });
        assert!(bits.all(0..200) && !bits.all(0..201));
        assert_eq!(bits.bytes(), 32);
        let bits = Bitmap::new(70);
        (0..3).for_each(|word| bits.set_word(word, u64::MAX));
        assert_eq!(bits.runs(0..100, true), [0..70]);
    }
}
