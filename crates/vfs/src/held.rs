//! The bound on the memory of callers that walk a tree.

use forerun_io::u64_from;

use crate::{Bound, Error, Limits, Result};

/// A count of the bytes that a caller collects while it walks or lists, bounded by
/// [`Limits::walk_bytes`].
#[derive(Clone, Debug)]
pub struct Held {
    bytes: u64,
    limit: u64,
}

impl Held {
    #[must_use]
    pub const fn new(limits: &Limits) -> Self {
        Self {
            bytes: 0,
            limit: limits.walk_bytes,
        }
    }

    /// Counts `bytes` that the caller is about to keep.
    ///
    /// # Errors
    /// [`Error::Limit`] if they exceed the limit; they are not counted then.
    pub fn add(&mut self, bytes: usize) -> Result<()> {
        let bytes = self.bytes.checked_add(u64_from(bytes));
        self.bytes = bytes.filter(|&bytes| bytes <= self.limit).ok_or_else(|| {
            let what = "memory for the walk, in bytes,";
            Error::limit(Bound::WalkMemory, what, self.limit)
        })?;
        Ok(())
    }

    /// Subtracts bytes that the caller has dropped.
    pub fn free(&mut self, bytes: usize) {
        self.bytes -= u64_from(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_not_counted() {
        let mut limits = Limits::default();
        limits.walk_bytes = 10;
        let mut held = Held::new(&limits);
        held.add(7).unwrap();
        let refused = held.add(4).unwrap_err().to_string();
        let expected = "memory for the walk, in bytes, exceeds the limit of 10";
        assert_eq!(refused, expected);
        held.add(3).unwrap();
        held.free(2);
        held.add(2).unwrap();
        assert!(held.add(usize::MAX).is_err());
    }
}
