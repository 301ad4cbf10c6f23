/// Computes the CRC-32 of UBI: without the final inversion.
pub fn crc(bytes: &[u8]) -> u32 {
    !libdeflater::crc32(bytes)
}
