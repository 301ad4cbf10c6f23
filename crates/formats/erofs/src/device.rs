//! Extra devices, and how block addresses resolve to devices.

use std::ops::Range;

use forerun_io::{ReadAt, u32_from, u64_from, usize_from};
use forerun_vfs::{BlobId, BlobName, Error, Extent, NodeId, Result};
use zerocopy::FromBytes;

use crate::error::Check;
use crate::ondisk::{DEVICE_SLOT, DeviceSlot, SUPERBLOCK_AT};
use crate::superblock::Superblock;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub tag: Vec<u8>,
    /// Length in blocks; 0 if the image does not record it.
    pub blocks: u64,
    /// First block in the address space that all devices share; 0 if the device is not mapped
    /// there.
    pub first: u64,
}

/// The extra devices in table order: the first is device 1.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    list: Vec<Device>,
    block_bits: u8,
    /// Whether the image contains the devices, where the shared address space has them.
    is_flat: bool,
}

impl Devices {
    pub fn read(source: &dyn ReadAt, superblock: &Superblock) -> Result<Self> {
        if superblock.devices == 0 {
            return Ok(Self {
                block_bits: superblock.block_bits,
                ..Self::default()
            });
        }
        let start = u64::from(superblock.device_slot) * DEVICE_SLOT;
        let len = u64::from(superblock.devices) * DEVICE_SLOT;
        let (end, image) = (start + len, source.len());
        if end > image {
            let what = "device table";
            return Err(Check::Outside {
                what,
                start,
                end,
                image,
            }
            .at(None, SUPERBLOCK_AT));
        }
        // At most 8 MiB, and at most the length of the image.
        let mut bytes = vec![0; usize_from(len)];
        let read = source.read_exact_at(start, &mut bytes);
        read.map_err(|error| Error::io(start, bytes.len(), error))?;
        let mut rest = &bytes[..];
        let mut list = Vec::with_capacity(usize::from(superblock.devices));
        while let Ok((slot, after)) = DeviceSlot::read_from_prefix(rest) {
            rest = after;
            let wide = |low: u32, high: u16| u64::from(high) << 32 | u64::from(low);
            let blocks = wide(slot.blocks_lo.get(), slot.blocks_hi.get());
            let first = wide(slot.uniaddr_lo.get(), slot.uniaddr_hi.get());
            // Numbers of blocks have at most 48 bits.
            if first + blocks > Extent::LAST >> superblock.block_bits {
                let number = list.len() + 1;
                let check = Check::DeviceEnd {
                    number,
                    first,
                    blocks,
                };
                return Err(check.at(None, start));
            }
            list.push(Device {
                tag: slot
                    .tag
                    .split(|&byte| byte == 0)
                    .next()
                    .unwrap_or_default()
                    .to_vec(),
                blocks,
                first,
            });
        }
        let block_bits = superblock.block_bits;
        let mut devices = Self {
            list,
            block_bits,
            is_flat: false,
        };
        let mut parts = devices.list.iter().map(|device| devices.part(device));
        devices.is_flat =
            parts.all(|part| part.start > 0 && !part.is_empty() && part.end <= source.len());
        Ok(devices)
    }

    /// Reads data of devices from the image if it contains them, and the caller has not given the
    /// first one. Linux reads such images, which containerd makes: an index with its archive behind.
    pub fn take_from_image_unless(&mut self, is_given: impl FnOnce(&BlobName) -> bool) {
        self.is_flat &= self.name(BlobId(1)).is_some_and(|first| !is_given(&first));
    }

    pub fn list(&self) -> &[Device] {
        &self.list
    }

    pub fn name(&self, blob: BlobId) -> Option<BlobName> {
        let position = usize::try_from(blob.0).ok()?.checked_sub(1)?;
        let tag = self.list.get(position)?.tag.clone();
        Some(BlobName::Device { index: blob.0, tag })
    }

    /// Resolves `offset` on `device` to a blob, the offset in the blob, and the number of
    /// contiguous bytes from there. Device 0 is the address space that all devices share.
    pub fn resolve(&self, device: u16, offset: u64) -> Result<(BlobId, u64, u64), Check> {
        let position = usize::from(device);
        if position > self.list.len() {
            let count = self.list.len();
            return Err(Check::Device { device, count });
        }
        let device = position
            .checked_sub(1)
            .and_then(|position| self.list.get(position));
        if self.is_flat {
            let start = device.map_or(0, |device| self.part(device).start);
            // The largest offset is outside of every image, which the caller reports.
            let offset = start.saturating_add(offset);
            return Ok((BlobId::IMAGE, offset, u64::MAX));
        }
        if device.is_some() {
            return Ok((BlobId(u32_from(u64_from(position))), offset, u64::MAX));
        }
        // Start of the next device in the shared address space.
        let mut next = u64::MAX;
        for (number, device) in (1..).zip(&self.list) {
            if device.first == 0 {
                continue;
            }
            let part = self.part(device);
            if part.contains(&offset) {
                return Ok((BlobId(number), offset - part.start, part.end - offset));
            }
            if part.start > offset {
                next = next.min(part.start);
            }
        }
        Ok((BlobId::IMAGE, offset, next - offset))
    }

    /// Returns the range of the shared address space that the device occupies.
    fn part(&self, device: &Device) -> Range<u64> {
        let at = |block: u64| block << self.block_bits;
        at(device.first)..at(device.first + device.blocks)
    }
}

/// Returns the error for file data outside the image or device.
pub fn outside(start: u64, len: u64, image: u64, node: NodeId, at: u64) -> Error {
    let (what, end) = ("file data", start.saturating_add(len));
    Check::Outside {
        what,
        start,
        end,
        image,
    }
    .at(Some(node), at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let device = |first, blocks| Device {
            tag: Vec::new(),
            blocks,
            first,
        };
        let devices = Devices {
            list: vec![device(0, 5), device(100, 10), device(110, 1)],
            block_bits: 9,
            is_flat: false,
        };
        for (number, block, expected) in [
            (0, 0, Ok((0, 0, 100))),
            (0, 99, Ok((0, 99, 1))),
            (0, 100, Ok((2, 0, 10))),
            (0, 109, Ok((2, 9, 1))),
            (0, 110, Ok((3, 0, 1))),
            (3, 7, Ok((3, 7, u64::MAX / 512))),
            (
                4,
                0,
                Err(Check::Device {
                    device: 4,
                    count: 3,
                }),
            ),
        ] {
            let actual = devices.resolve(number, block * 512);
            let actual = actual.map(|(blob, offset, len)| (blob.0, offset / 512, len / 512));
            assert_eq!(actual, expected, "{number} {block}");
        }
        let last = devices.resolve(0, 111 * 512).unwrap();
        assert_eq!((last.0, last.1), (BlobId::IMAGE, 111 * 512));
    }
}
