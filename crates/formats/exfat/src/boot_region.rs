//! Reads the main and the backup boot region.

use forerun_io::{ReadAt, usize_from};
use forerun_vfs::{Error, Result};

use crate::boot::{self, Boot};
use crate::error::Check;

/// Reads the main boot region, or the backup if only the backup is sound. The flag says whether the
/// backup was used.
pub fn read_boot(source: &dyn ReadAt) -> Result<(Boot, bool)> {
    match boot_region(source, 0) {
        Err(error @ Error::Corrupt(_)) => {
            let backup = backup_region(source);
            backup.map(|boot| (boot, true)).ok_or(error)
        }
        main => main.map(|boot| (boot, false)),
    }
}

/// Reads a boot sector when the main region is damaged: the backup's, or the main boot sector
/// although the checksum of its region is wrong.
pub fn boot_to_rescue_by(source: &dyn ReadAt) -> Result<(Boot, bool)> {
    match backup_region(source) {
        Some(boot) => Ok((boot, true)),
        None => boot_sector(source, 0).map(|boot| (boot, false)),
    }
}

/// Reads the backup boot region if it is sound. Tries each sector size, because the size decides
/// where the backup begins.
pub fn backup_region(source: &dyn ReadAt) -> Option<Boot> {
    (9..=12_u8).find_map(|bits| {
        let found = boot_region(source, boot::REGION_SECTORS << bits).ok()?;
        (found.sector_bits == bits).then_some(found)
    })
}

/// Reads the boot sector at `offset` without checking the rest of its region.
fn boot_sector(source: &dyn ReadAt, offset: u64) -> Result<Boot> {
    let mut sector = [0; 512];
    let (len, need) = (source.len(), offset + 512);
    if len < need {
        return Err(Check::ShortBoot { len, need }.at(None, offset));
    }
    let read = source.read_exact_at(offset, &mut sector);
    read.map_err(|error| Error::io(offset, sector.len(), error))?;
    Boot::parse(&sector, offset)
}

/// Reads the boot sector of the region at `offset`, and checks the checksum of the region.
pub fn boot_region(source: &dyn ReadAt, offset: u64) -> Result<Boot> {
    let boot = boot_sector(source, offset)?;
    let (len, need) = (source.len(), offset + boot.region_len());
    if len < need {
        return Err(Check::ShortBoot { len, need }.at(None, offset));
    }
    let mut region = vec![0; usize_from(boot.region_len())];
    let read = source.read_exact_at(offset, &mut region);
    read.map_err(|error| Error::io(offset, region.len(), error))?;
    boot::verify(&region, usize_from(boot.sector_size()))
        .map_err(|check| check.at(None, offset))?;
    Ok(boot)
}
