//! CRC-32 of members (4.4.7).

use libdeflater::Crc;

/// Returns the CRC-32 of bytes.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}
