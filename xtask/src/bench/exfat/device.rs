//! Loop devices that are written, mounts of them, and what the kernel counts at them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};
use forerun_measure::mount::{Access, Attach, LoopDevice, Mount, Mounted, Other};

use super::rows::ExfatContender;

/// Attaches a volume for writing.
pub fn attach(image: &Path) -> Result<LoopDevice> {
    let how = Attach {
        writable: true,
        ..Attach::default()
    };
    LoopDevice::attach(image, how)
}

/// Returns the writes, KiB written and flushes of a device so far.
pub fn counted(device: &LoopDevice) -> Result<[u64; 3]> {
    let name = device.path().file_name().context("a loop device")?;
    let stat = Path::new("/sys/block").join(name).join("stat");
    let text = fs::read_to_string(&stat).with_context(|| stat.display().to_string())?;
    let numbers: Vec<u64> = text
        .split_whitespace()
        .map(|word| word.parse().unwrap_or(0))
        .collect();
    let field = |index: usize| numbers.get(index).copied().unwrap_or(0);
    Ok([field(4), field(6) / 2, field(15)])
}

/// Makes everything durable that was written to a device so far.
pub fn flush(device: &LoopDevice) -> Result<()> {
    File::open(device.path())?.sync_data()?;
    Ok(())
}

/// Mounts `source`, a device or, for forerun, an image.
pub fn mount(
    forerun: &Path,
    contender: ExfatContender,
    source: &Path,
    options: &str,
) -> Result<Mount> {
    match contender {
        ExfatContender::Forerun => {
            let arguments = ["-o", options].map(OsStr::new);
            Mounted::with_arguments(forerun, source, Access::ROOT, &arguments).map(Mount::Forerun)
        }
        ExfatContender::ExfatFuse | ExfatContender::ExfatFuseFlushed => {
            Other::exfat_fuse(source, options).map(Mount::Other)
        }
    }
}
