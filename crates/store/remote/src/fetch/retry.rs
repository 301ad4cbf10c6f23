//! Pauses between attempts, doubled each time, with jitter.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

pub struct Backoff {
    count: u32,
}

impl Backoff {
    pub const fn new() -> Self {
        Self { count: 0 }
    }

    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Counts a failure. Returns the pause after it: at random between half and all of the doubled
    /// time.
    pub fn next(&mut self) -> Duration {
        let full = FIRST.saturating_mul(1 << self.count.min(16)).min(LONGEST);
        self.count = self.count.saturating_add(1);
        full.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        let mut backoff = Backoff::new();
        for n in 0..40 {
            let full = FIRST.saturating_mul(1 << n.min(6)).min(LONGEST);
            let pause = backoff.next();
            assert!(pause >= full / 2 && pause <= full, "{n}: {pause:?}");
        }
        assert_eq!(backoff.count(), 40);
    }
}
