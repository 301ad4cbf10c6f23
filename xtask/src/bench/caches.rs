//! Cold caches before each run.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{Advice, fadvise};

/// Drops the pages of the image from the page cache, and as root empties all caches.
pub fn drop_caches(image: &Path) -> Result<()> {
    let file = File::open(image).with_context(|| image.display().to_string())?;
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    if rustix::process::geteuid().is_root() {
        drop_all()?;
    }
    Ok(())
}

/// Empties page cache, dentries and inodes, after writing what is dirty. Needs root.
pub fn drop_all() -> Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches")
}
