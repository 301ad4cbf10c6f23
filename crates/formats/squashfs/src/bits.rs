//! Packed bit fields, laid out as C compilers do on machines of either byte order.
//!
//! In a little-endian image the first field has the lowest bits of the first bytes; in a big-endian
//! one, the highest. Fields of whole bytes read as plain numbers of that byte order.

use forerun_io::{u16_from, u32_from};
use forerun_vfs::ByteOrder;

/// Reads the bit fields of a structure in order. Fields past its end are zero.
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

    /// Reads a field of at most 64 bits.
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

    pub fn u32(&mut self, width: usize) -> u32 {
        u32_from(self.u64(width))
    }

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
