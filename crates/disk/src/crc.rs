//! The CRC-32 of UBI.

/// Computes the CRC-32 as UBI has it: without the last inversion.
pub fn crc(bytes: &[u8]) -> u32 {
    !libdeflater::crc32(bytes)
}
