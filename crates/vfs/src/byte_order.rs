//! The byte order of an image's numbers, for formats that come in both orders.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Little => "little-endian",
            Self::Big => "big-endian",
        }
    }

    #[must_use]
    pub const fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    #[must_use]
    pub const fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    #[must_use]
    pub const fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }

    /// Returns the number at `at`, or `None` if `bytes` ends before it does.
    #[must_use]
    pub fn u16_at(self, bytes: &[u8], at: usize) -> Option<u16> {
        Some(self.u16(*bytes.get(at..)?.first_chunk()?))
    }

    #[must_use]
    pub fn u32_at(self, bytes: &[u8], at: usize) -> Option<u32> {
        Some(self.u32(*bytes.get(at..)?.first_chunk()?))
    }

    #[must_use]
    pub fn u64_at(self, bytes: &[u8], at: usize) -> Option<u64> {
        Some(self.u64(*bytes.get(at..)?.first_chunk()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_both_orders() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        for (order, expected) in [
            (
                ByteOrder::Little,
                (0x0201, 0x0403_0201, 0x0807_0605_0403_0201),
            ),
            (ByteOrder::Big, (0x0102, 0x0102_0304, 0x0102_0304_0506_0708)),
        ] {
            let (first, second, third) = expected;
            assert_eq!(order.u16_at(&bytes, 0), Some(first));
            assert_eq!(order.u32_at(&bytes, 0), Some(second));
            assert_eq!(order.u64_at(&bytes, 0), Some(third));
        }
    }

    #[test]
    fn numbers_that_are_not_all_there_are_nothing() {
        let (order, bytes) = (ByteOrder::Big, [0; 8]);
        assert_eq!(order.u16_at(&bytes, 7), None);
        assert_eq!(order.u32_at(&bytes, 5), None);
        assert_eq!(order.u64_at(&bytes, 1), None);
        assert_eq!(order.u64_at(&bytes, usize::MAX), None);
    }
}
