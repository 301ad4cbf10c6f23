//! Restores each boot region from the other.

use std::sync::Arc;

use forerun_io::{WriteBack, u64_from, usize_from};
use forerun_vfs::{Error, Result};

use super::report::{Desk, Finding, Kind};
use super::work::{BOOT, put};
use crate::boot::{Boot, FLAGS_AT, PERCENT_AT};
use crate::boot_region::{backup_region, boot_region};
use crate::error::Check;
use crate::ondisk::volume_flag;

/// Repairs the boot regions. Returns the boot sector of a sound region, or `None` if no region is
/// sound or the user leaves the main one damaged.
pub fn settle(back: &Arc<WriteBack>, desk: &mut Desk<'_>, dry: bool) -> Result<Option<Boot>> {
    let damage = match boot_region(&**back, 0) {
        Ok(boot) => {
            backup(back, desk, dry, &boot)?;
            return Ok(Some(boot));
        }
        Err(error @ (Error::Corrupt(_) | Error::UnknownFormat { .. })) => error,
        Err(error) => return Err(error),
    };
    let Some(mut boot) = backup_region(&**back) else {
        return match damage {
            Error::Corrupt(_) => {
                desk.leave(Kind::MainBoot, None, damage);
                Ok(None)
            }
            error => Err(error),
        };
    };
    let remedy = Some("write it anew from the backup".to_string());
    let finding = Finding {
        kind: Kind::MainBoot,
        path: None,
        error: match damage {
            Error::UnknownFormat { .. } => Check::NoMainBoot.at(None, 0),
            damage => damage,
        },
        remedy,
    };
    if !desk.ask(finding) {
        return Ok(None);
    }
    // The flag was known only from the main region, which is damaged.
    boot.flags |= volume_flag::VOLUME_DIRTY;
    if !dry {
        let mut region = read(back, boot.region_len(), boot.region_len())?;
        let flags = boot.flags.to_le_bytes();
        for (to, byte) in region.iter_mut().skip(FLAGS_AT).zip(flags) {
            *to = byte;
        }
        put(back, BOOT, 0, &region)?;
    }
    Ok(Some(boot))
}

fn backup(back: &Arc<WriteBack>, desk: &mut Desk<'_>, dry: bool, boot: &Boot) -> Result<()> {
    let len = boot.region_len();
    if back_len(back) < 2 * len {
        return Ok(());
    }
    let (mut main, mut found) = (read(back, 0, len)?, read(back, len, len)?);
    for at in [FLAGS_AT, FLAGS_AT + 1, PERCENT_AT] {
        for region in [&mut main, &mut found] {
            if let Some(byte) = region.get_mut(at) {
                *byte = 0;
            }
        }
    }
    if main == found {
        return Ok(());
    }
    let finding = Finding {
        kind: Kind::BackupBoot,
        path: None,
        error: Check::BackupDiffers.at(None, len),
        remedy: Some("write it anew from the main one".to_string()),
    };
    if desk.ask(finding) && !dry {
        put(back, BOOT, len, &main)?;
    }
    Ok(())
}

fn back_len(back: &WriteBack) -> u64 {
    forerun_io::ReadAt::len(back)
}

fn read(back: &WriteBack, offset: u64, len: u64) -> Result<Vec<u8>> {
    let mut region = vec![0; usize_from(len)];
    let read = forerun_io::ReadAt::read_exact_at(back, offset, &mut region);
    read.map_err(|error| Error::io(offset, region.len(), error))?;
    debug_assert_eq!(u64_from(region.len()), len);
    Ok(region)
}
