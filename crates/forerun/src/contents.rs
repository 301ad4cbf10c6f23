//! Recognises what a device or file holds, for programs that are about to overwrite it.
//!
//! Besides the formats of the registry, it knows partition tables and filesystems that forerun does
//! not open. It only compares magic numbers: a false alarm is better than overwriting valuable
//! data.

use forerun_disk::partitions::partition_table;
use forerun_io::{ReadAt, usize_from};
use forerun_vfs::{Error, Result};

use crate::OpenOptions;
use crate::identify::format_of;

/// A magic number: its offset, its bytes and the name of the contents.
struct ContentSign(usize, &'static [u8], &'static str);

const SIGNS: &[ContentSign] = &[
    ContentSign(0, b"XFSB", "xfs"),
    ContentSign(0, b"LUKS\xba\xbe", "LUKS"),
    ContentSign(3, b"NTFS    ", "NTFS"),
    ContentSign(3, b"-FVE-FS-", "BitLocker"),
    ContentSign(0x36, b"FAT1", "FAT"),
    ContentSign(0x52, b"FAT32   ", "FAT"),
    ContentSign(0x200, b"LABELONE", "LVM"),
    ContentSign(0x218, b"LVM2 001", "LVM"),
    ContentSign(0x400, b"\x10\x20\xf5\xf2", "f2fs"),
    ContentSign(0x400, b"H+\x00\x04", "HFS+"),
    ContentSign(0x438, b"\x53\xef", "ext2, ext3 or ext4"),
    ContentSign(0xff6, b"SWAPSPACE2", "swap"),
    ContentSign(0x1000, b"\xfc\x4e\x2b\xa9", "RAID"),
    ContentSign(0x8001, b"CD001", "ISO 9660"),
    ContentSign(0x8001, b"NSR0", "UDF"),
    ContentSign(0x1_0040, b"_BHRfS_M", "btrfs"),
];

/// Number of bytes from the start of a source that cover all [`SIGNS`].
const LEN: u64 = 0x1_0048;

/// Returns the name of the filesystem or other contents whose magic number `source` has, or `None`
/// if it has no known one.
///
/// # Errors
/// [`Error::Io`] if the source cannot be read.
pub fn contents(source: &dyn ReadAt) -> Result<Option<&'static str>> {
    match format_of(source, &OpenOptions::default()) {
        Some(format) => Ok(Some(format.name)),
        None => foreign(source),
    }
}

/// Like [`contents`], for contents that forerun does not open.
///
/// # Errors
/// [`Error::Io`] if the source cannot be read.
pub fn foreign(source: &dyn ReadAt) -> Result<Option<&'static str>> {
    let mut head = vec![0; usize_from(source.len().min(LEN))];
    let read = source.read_exact_at(0, &mut head);
    read.map_err(|error| Error::io(0, head.len(), error))?;
    let has = |ContentSign(offset, magic, _): &&ContentSign| {
        head.get(*offset..)
            .is_some_and(|head| head.starts_with(magic))
    };
    if let Some(ContentSign(.., name)) = SIGNS.iter().find(has) {
        return Ok(Some(name));
    }
    Ok(partition_table(source)?.map(|_| "a partition table"))
}

#[cfg(test)]
mod tests {
    use forerun_io::MemorySource;

    use super::*;

    #[test]
    fn filesystems_and_tables_are_recognised_and_zeros_are_not() {
        for ContentSign(offset, magic, name) in SIGNS {
            let mut bytes = vec![0; 1 << 17];
            bytes[*offset..offset + magic.len()].copy_from_slice(magic);
            assert_eq!(contents(&MemorySource::new(bytes)).unwrap(), Some(*name));
        }
        let mut table = vec![0; 1 << 20];
        table[0x1be..0x1ce].copy_from_slice(&[0, 0, 0, 0, 0x83, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0]);
        table[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
        let found = contents(&MemorySource::new(table)).unwrap();
        assert_eq!(found, Some("a partition table"));
        for len in [0, 1, 512, 1 << 17] {
            assert_eq!(
                contents(&MemorySource::new(vec![0; len])).unwrap(),
                None,
                "{len}"
            );
        }
    }

    #[test]
    fn every_sign_lies_in_the_bytes_that_are_read() {
        for ContentSign(offset, magic, name) in SIGNS {
            assert!(offset + magic.len() <= usize_from(LEN), "{name}");
        }
    }
}
