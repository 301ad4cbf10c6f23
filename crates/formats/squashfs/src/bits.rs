//! Packed bit fields, as compilers laid them out on machines of both byte orders.
//!
//! In a little-endian image the first field has the lowest bits of the first bytes; in a big-endian
//! one the highest. Fields that are whole bytes come out as plain numbers of that order.

use forerun_io::{u16_from, u32_from};
use forerun_vfs::ByteOrder;

/// Takes the fields of a structure one after the other. Fields past its end are zero.
#[derive(Clone, Debug)]
pub struct Bits<'b> {
    bytes: &'b [u8],
    order: ByteOrder,
    at: usize,
}

impl<'b> Bits<'b> {
    pub const fn new(bytes: &'b [u8], order: ByteOrder) -> Self {
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
                ByteOrder::Little => value |= u64::from(byte >> (bit % 8) & 1) << index,
                ByteOrder::Big => value = value << 1 | u64::from(byte >> (7 - bit % 8) & 1),
            }
        }
        self.at += width;
        value
    }

    /// Takes a field of `width` bits, 32 at most.
    pub fn u32(&mut self, width: usize) -> u32 {
        u32_from(self.u64(width))
    }

    /// Takes a field of `width` bits, 16 at most.
    pub fn u16(&mut self, width: usize) -> u16 {
        u16_from(self.u64(width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_both_orders() {
        for (order, bytes) in [
            (ByteOrder::Little, [0xD2, 0x8F, 7, 1, 2]),
            (ByteOrder::Big, [0x28, 0xFD, 7, 2, 1]),
        ] {
            let mut bits = Bits::new(&bytes, order);
            assert_eq!((bits.u16(4), bits.u16(12)), (2, 0x8FD), "{order:?}");
            assert_eq!((bits.u16(8), bits.u16(16)), (7, 0x201), "{order:?}");
            assert_eq!(bits.u64(64), 0);
        }
    }
}
