use std::io;
use std::ops::Range;
use std::sync::RwLock;

use crate::Unpoisoned;
use crate::{BlockDevice, ReadAt, past_end, u64_from, usize_from};

/// A volume held in memory, for tests and for temporary images.
#[derive(Debug)]
pub struct MemoryDevice {
    bytes: RwLock<Vec<u8>>,
    len: u64,
    sector: u32,
}

impl MemoryDevice {
    /// Creates a device of these bytes, with sectors of 512 bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self::with_sector_size(bytes, 512)
    }

    /// Creates a device of these bytes. `sector` is a power of two, at least 512.
    #[must_use]
    pub fn with_sector_size(bytes: Vec<u8>, sector: u32) -> Self {
        Self {
            len: u64_from(bytes.len()),
            bytes: RwLock::new(bytes),
            sector,
        }
    }

    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.read().unpoisoned().clone()
    }
}

impl ReadAt for MemoryDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        past_end(offset, out.len(), self.len)?;
        let bytes = self.bytes.read().unpoisoned();
        let found = bytes.get(place(offset, out.len()));
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl BlockDevice for MemoryDevice {
    fn sector_size(&self) -> u32 {
        self.sector
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        past_end(offset, data.len(), self.len)?;
        let mut bytes = self.bytes.write().unpoisoned();
        let place = bytes.get_mut(place(offset, data.len()));
        place
            .ok_or(io::ErrorKind::UnexpectedEof)?
            .copy_from_slice(data);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the range in memory. The caller has checked it against the length.
fn place(offset: u64, len: usize) -> Range<usize> {
    let start = usize_from(offset);
    start..start + len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_read_back_and_bounded() {
        let device = MemoryDevice::new(vec![0; 1024]);
        device.write_all_at(1000, &[1; 24]).unwrap();
        assert_eq!(device.to_vec()[999..1001], [0, 1]);
        let error = device.write_all_at(1001, &[1; 24]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!((device.sector_size(), device.len()), (512, 1024));
    }
}
