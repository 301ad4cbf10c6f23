//! Raises the kernel's readahead for one mount.
//!
//! INIT cannot request more than 128 KiB, but root can raise it afterwards in sysfs. The sysfs
//! entry disappears with the mount, so nothing has to be restored.

use std::path::PathBuf;

/// Maximum readahead in bytes: four of the kernel's largest requests.
const WANTED: u64 = 4 << 20;
const DEFAULT: u64 = 128 << 10;

/// Raises the readahead of the filesystem with this device number to at most `readahead` bytes.
/// Returns whether that succeeded.
pub fn lift(device: (u32, u32), readahead: u64) -> bool {
    let wanted = WANTED.min(readahead);
    if wanted <= DEFAULT {
        return false;
    }
    let (major, minor) = device;
    let entry = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    match std::fs::write(&entry, format!("{}\n", wanted >> 10)) {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!("{}: {error}", entry.display());
            false
        }
    }
}
