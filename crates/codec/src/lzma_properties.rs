/// The three parameters of an LZMA stream, in one byte as its header stores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LzmaProperties(u8);

/// The largest values: literal context bits, literal position bits, position bits.
const MOST: [u8; 3] = [8, 4, 4];

impl LzmaProperties {
    /// Returns the properties of `lc` literal context bits, `lp` literal position bits and `pb`
    /// position bits. Returns `None` if no decoder accepts them: `lc` is at most 8, `lp` and `pb`
    /// are at most 4.
    #[must_use]
    pub const fn new(lc: u8, lp: u8, pb: u8) -> Option<Self> {
        if lc > MOST[0] || lp > MOST[1] || pb > MOST[2] {
            return None;
        }
        Some(Self((pb * 5 + lp) * 9 + lc))
    }

    /// Parses the first byte of a header.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Self::new(byte % 9, byte / 9 % 5, byte / 45)
    }

    #[must_use]
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// Returns whether liblzma refuses the properties: it accepts an `lc` and `lp` of together at
    /// most 4.
    #[must_use]
    pub const fn is_wide(self) -> bool {
        self.0 % 9 + self.0 / 9 % 5 > 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_properties_or_none() {
        for byte in 0..=255 {
            let found = LzmaProperties::from_byte(byte);
            assert_eq!(
                found.map(LzmaProperties::byte),
                (byte < 225).then_some(byte)
            );
        }
        for (lc, lp, is_wide) in [(3, 0, false), (4, 0, false), (3, 2, true), (8, 4, true)] {
            let made = LzmaProperties::new(lc, lp, 2).unwrap();
            assert_eq!(made.is_wide(), is_wide, "{lc} {lp}");
        }
        assert_eq!(LzmaProperties::new(9, 0, 0), None);
        assert_eq!(LzmaProperties::new(255, 255, 255), None);
    }
}
