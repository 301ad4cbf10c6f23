//! A seeded random number generator: the same seed gives the same trees on every machine.

/// SplitMix64 (Steele, Lea and Flood, 2014): one addition and a mixing function per number.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0. It is not exactly uniform, which no
    /// test needs.
    pub const fn below(&mut self, bound: u64) -> u64 {
        match bound {
            0 => 0,
            bound => self.next_u64() % bound,
        }
    }
}
