//! Cold caches before each run.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{Advice, fadvise};

/// Drops the pages of the image from the page cache, and as root empties all caches. Returns whether all caches
/// were emptied.
pub fn drop_caches(image: &Path) -> Result<bool> {
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        // A device that is mounted cannot be synchronised by every user.
        rustix::fs::sync();
        fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches")?;
    }
    let file = File::open(image).with_context(|| image.display().to_string())?;
    if !is_root {
        file.sync_all()?;
    }
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(is_root)
}
