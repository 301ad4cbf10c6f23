//! Validates the boot region of a volume that a search has found.

use forerun_io::{ReadAt, usize_from};
use forerun_vfs::{Error, Measured, Result, read_head};
use zerocopy::FromBytes;

use crate::boot::{self, Boot};
use crate::error::Check;
use crate::ondisk::{ENTRY, LabelEntry, kind};

/// Bytes of the root directory that are searched for the label. Systems write it first.
const ROOT_HEAD: u64 = 4096;

/// Validates the main boot region and its checksum, and reads the label if it is among the first entries of
/// the root directory.
///
/// # Errors
/// The errors of [`Boot::parse`], `Corrupt` for a wrong checksum, `Io`.
pub fn measure(source: &dyn ReadAt) -> Result<Measured> {
    let boot = Boot::parse(&read_head(source, 512)?, 0)?;
    if let Some(revision) = boot.unknown_revision() {
        return Err(Error::Unsupported(revision));
    }
    let needed = boot.volume_len >> boot.sector_bits;
    if boot.declared_len != needed {
        let check = Check::BootField {
            what: "VolumeLength",
            found: boot.declared_len,
            low: needed,
            high: u64::MAX >> boot.sector_bits,
        };
        return Err(check.at(None, 0));
    }
    // At most twelve sectors of 4096 bytes.
    let region = read_head(source, usize_from(boot.region_len()))?;
    let sector_size = usize_from(boot.sector_size());
    boot::verify(&region, sector_size).map_err(|check| check.at(None, 0))?;
    Ok(Measured {
        len: Some(boot.volume_len),
        label: if boot.volume_len > source.len() {
            Vec::new()
        } else {
            label(source, &boot)?
        },
        ..Measured::default()
    })
}

fn label(source: &dyn ReadAt, boot: &Boot) -> Result<Vec<u8>> {
    let len = boot.cluster_size().min(ROOT_HEAD);
    let offset = boot.cluster_at(boot.root);
    let mut bytes = vec![0; usize_from(len)];
    let read = source.read_exact_at(offset, &mut bytes);
    read.map_err(|error| Error::io(offset, bytes.len(), error))?;
    let entries = bytes.chunks_exact(ENTRY);
    let mut used = entries.take_while(|entry| entry.first() != Some(&kind::END));
    let entry = used.find(|entry| entry.first() == Some(&kind::LABEL));
    let entry = entry.and_then(|entry| LabelEntry::read_from_bytes(entry).ok());
    Ok(entry.map_or_else(Vec::new, |entry| {
        let units = entry.volume_label.iter().map(|unit| unit.get());
        let units: Vec<_> = units.take(usize::from(entry.character_count)).collect();
        String::from_utf16_lossy(&units).into_bytes()
    }))
}

const _: () = assert!(ENTRY == size_of::<LabelEntry>());

#[cfg(test)]
mod tests {
    use forerun_io::MemorySource;

    use super::*;

    #[test]
    fn noise_is_no_volume() {
        for bytes in [&b""[..], &[0; 512], b"\xeb\x76\x90EXFAT   "] {
            assert!(measure(&MemorySource::new(bytes)).is_err());
        }
    }
}
