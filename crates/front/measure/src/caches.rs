//! Cold caches before each run.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{Advice, fadvise};

use crate::memory::have_at_hand;
use crate::reports;

/// Drops the pages of the image from the page cache, and as root empties all caches. Then there is memory at hand for a
/// run that reads or extracts `contents` bytes. Returns whether all caches were emptied.
pub fn drop_caches(image: &Path, contents: u64) -> Result<bool> {
    let all = drop_image(image)?;
    have_at_hand(contents);
    Ok(all)
}

/// Does the same, and waits up to 2.5 seconds until the machine does not give memory back for a while: short runs
/// are slower meanwhile.
pub fn drop_caches_between_reports(image: &Path, contents: u64) -> Result<bool> {
    let all = drop_image(image)?;
    reports::wait_for_end();
    have_at_hand(contents);
    Ok(all)
}

fn drop_image(image: &Path) -> Result<bool> {
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        // A device that is mounted cannot be synchronised by every user.
        empty()?;
    }
    let file = File::open(image).with_context(|| image.display().to_string())?;
    if !is_root {
        file.sync_all()?;
    }
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(is_root)
}

/// Empties page cache, dentries and inodes, after writing what is dirty, and has memory at hand for a run with
/// contents of any size. Needs root.
pub fn drop_all() -> Result<()> {
    empty()?;
    have_at_hand(u64::MAX);
    Ok(())
}

fn empty() -> Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches")
}
