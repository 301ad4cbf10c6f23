//! Recognises what a device or file holds, for programs that are about to overwrite it.
//!
//! Besides the formats of the registry, it knows partition tables and filesystems that forerun does
//! not open. It only compares magic numbers: a false alarm is better than overwriting valuable
//! data.

use forerun_disk::known::volume_at_start;
use forerun_disk::partitions::partition_table;
use forerun_io::ReadAt;
use forerun_vfs::Result;

use crate::OpenOptions;
use crate::identify::format_of;

/// Returns the name of the filesystem or other contents whose magic number `source` has, or `None`
/// if it has no known one.
///
/// # Errors
/// [`Error::Io`](forerun_vfs::Error::Io) if the source cannot be read.
pub fn contents(source: &dyn ReadAt) -> Result<Option<&'static str>> {
    match format_of(source, &OpenOptions::default()) {
        Some(format) => Ok(Some(format.name)),
        None => foreign(source),
    }
}

/// Like [`contents`], for contents that forerun does not open.
///
/// # Errors
/// [`Error::Io`](forerun_vfs::Error::Io) if the source cannot be read.
pub fn foreign(source: &dyn ReadAt) -> Result<Option<&'static str>> {
    if let Some(name) = volume_at_start(source)? {
        return Ok(Some(name));
    }
    Ok(partition_table(source)?.map(|_| "a partition table"))
}

#[cfg(test)]
mod tests {
    use forerun_disk::known::{KNOWN, Role};
    use forerun_io::{MemorySource, usize_from};

    use super::*;

    #[test]
    fn filesystems_and_tables_are_recognised_and_zeros_are_not() {
        for known in KNOWN {
            let Role::Volume(title) = known.role else {
                continue;
            };
            let at = usize_from(known.magic.offset);
            let mut bytes = vec![0; 1 << 17];
            bytes[at..at + known.magic.bytes.len()].copy_from_slice(known.magic.bytes);
            let found = contents(&MemorySource::new(bytes)).unwrap();
            assert_eq!(found, Some(title));
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
}
