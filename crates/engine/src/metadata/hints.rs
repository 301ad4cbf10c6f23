//! Hints for metadata interleaved with data: where it is dense enough, the kernel reads ahead the
//! part of the image around it.
//!
//! No driver can say which blocks of such an image are metadata, and a walk does not visit them in
//! physical order. Reading the whole image here would take memory for all of it, whereas the
//! kernel's page cache can drop what is not used. So the first miss in a part of the image hints
//! that part, and each block that a reader then wants in a hinted part pays for more hints. As long
//! as readers want one block per [`HINT_WORTH`] hinted bytes, the steps grow. If metadata is
//! sparser, the hints end: a 32-byte header before each large file stays one small read.

use crate::tuning::{
    HINT_CREDIT, HINT_PARTS, HINT_STEP_MAX, HINT_STEP_MIN, HINT_TRUST, HINT_WORTH,
};
use std::collections::BTreeMap;
use std::ops::Range;

/// The parts hinted so far, and the credit in bytes for further hints.
pub struct Hints {
    credit: u64,
    parts: BTreeMap<u64, u64>,
}

impl Default for Hints {
    fn default() -> Self {
        Self {
            credit: HINT_TRUST,
            parts: BTreeMap::new(),
        }
    }
}

impl Hints {
    /// Records a cache miss at `offset` of a source of `len` bytes. Returns the range to hint, if
    /// any.
    pub fn on_miss(&mut self, offset: u64, len: u64) -> Option<Range<u64>> {
        let start = match self.end_of(offset) {
            Some(end) => {
                self.credit += HINT_WORTH;
                // The hints around here are used: hint the part behind them before a reader gets
                // there.
                if self.credit < HINT_CREDIT {
                    return None;
                }
                end
            }
            None => offset - offset % HINT_STEP_MIN,
        };
        if self.credit < HINT_STEP_MIN || self.parts.len() >= HINT_PARTS || start >= len {
            return None;
        }
        let step = (self.credit / 4).clamp(HINT_STEP_MIN, HINT_STEP_MAX);
        let step = step - step % HINT_STEP_MIN;
        let next = self.parts.range(start..).next().map(|(&start, _)| start);
        let end = (start + step).min(len).min(next.unwrap_or(len));
        self.credit -= end - start;
        self.note(start..end);
        (start < end).then_some(start..end)
    }

    pub fn covers(&self, offset: u64) -> bool {
        self.end_of(offset).is_some()
    }

    fn end_of(&self, offset: u64) -> Option<u64> {
        let (_, &end) = self.parts.range(..=offset).next_back()?;
        (offset < end).then_some(end)
    }

    /// Records `part`, which overlaps no other part, and joins it with adjacent parts.
    fn note(&mut self, part: Range<u64>) {
        let (mut start, mut end) = (part.start, part.end);
        if let Some((&before, &to)) = self.parts.range(..start).next_back()
            && to == start
        {
            start = before;
        }
        if let Some(to) = self.parts.remove(&end) {
            end = to;
        }
        self.parts.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 1 << 30;

    /// Simulates misses `apart` bytes from each other, shuffled within each hundred. Returns the
    /// bytes hinted and the number of hints.
    fn walk(apart: u64) -> (u64, u64) {
        let mut hints = Hints::default();
        let (mut bytes, mut requests) = (0, 0);
        let count = LEN / apart;
        for n in 0..count {
            let at = (n / 100 * 100 + n * 37 % 100) % count * apart;
            if let Some(hint) = hints.on_miss(at, LEN) {
                bytes += hint.end - hint.start;
                requests += 1;
            }
        }
        (bytes, requests)
    }

    #[test]
    fn a_dense_image_is_hinted_whole_in_few_steps() {
        let (bytes, requests) = walk(16 << 10);
        assert!(bytes > LEN / 100 * 99, "{bytes}");
        assert!(requests < 800, "{requests}");
    }

    #[test]
    fn a_sparse_image_costs_the_trust_and_little_more() {
        let (bytes, _) = walk(1 << 20);
        assert!(bytes <= HINT_TRUST + HINT_TRUST / 4, "{bytes}");
    }

    #[test]
    fn nothing_is_hinted_twice_or_past_the_end() {
        let mut hints = Hints::default();
        let len = 200 << 10;
        assert_eq!(hints.on_miss(150 << 10, len), Some(128 << 10..len));
        assert_eq!(hints.on_miss(160 << 10, len), None);
        assert_eq!(hints.on_miss(0, len), Some(0..128 << 10));
        assert_eq!(hints.parts.len(), 1, "touching parts are one");
    }
}
