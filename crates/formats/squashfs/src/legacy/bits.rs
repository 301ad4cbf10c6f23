//! Packed bit fields, as compilers laid them out on machines of both byte orders.
//!
//! In a little-endian image the first field has the lowest bits of the first bytes; in a big-endian
//! one the highest. Fields that are whole bytes come out as plain numbers of that order.

/// The byte order of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Little,
    Big,
}

impl Order {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Little => "little-endian",
            Self::Big => "big-endian",
        }
    }

    pub const fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    pub const fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }
}

/// Takes the fields of a structure one after the other. Fields past its end are zero.
#[derive(Clone, Debug)]
pub struct Bits<'b> {
    bytes: &'b [u8],
    order: Order,
    at: usize,
}

impl<'b> Bits<'b> {
    pub const fn new(bytes: &'b [u8], order: Order) -> Self {
        Self {
            bytes,
            order,
            at: 0,
        }
    }

    /// Takes a field of `width` bits, 64 at most.
    pub fn u64(&mut self, width: usize) -> u64 {
        let mut value = 0;
        for index in 0..width.min(64) {
            let bit = self.at + index;
            let byte = self.bytes.get(bit / 8).copied().unwrap_or(0);
            match self.order {
                Order::Little => value |= u64::from(byte >> (bit % 8) & 1) << index,
                Order::Big => value = value << 1 | u64::from(byte >> (7 - bit % 8) & 1),
            }
        }
        self.at += width;
        value
    }

    /// Takes a field of `width` bits, 32 at most.
    pub fn u32(&mut self, width: usize) -> u32 {
        u32::try_from(self.u64(width.min(32))).unwrap_or(u32::MAX)
    }

    /// Takes a field of `width` bits, 16 at most.
    pub fn u16(&mut self, width: usize) -> u16 {
        u16::try_from(self.u64(width.min(16))).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_both_orders() {
        for (order, bytes) in [
            (Order::Little, [0xD2, 0x8F, 7, 1, 2]),
            (Order::Big, [0x28, 0xFD, 7, 2, 1]),
        ] {
            let mut bits = Bits::new(&bytes, order);
            assert_eq!((bits.u16(4), bits.u16(12)), (2, 0x8FD), "{order:?}");
            assert_eq!((bits.u16(8), bits.u16(16)), (7, 0x201), "{order:?}");
            assert_eq!(bits.u64(64), 0);
        }
    }
}
