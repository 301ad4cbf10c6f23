//! Cold caches before each run.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{Advice, fadvise};

use crate::process;
use crate::run::Worker;

/// Drops the pages of the image from the page cache, and as root empties all caches. Then a process of `worker` has
/// memory at hand for a run that reads or extracts `contents` bytes. Returns whether all caches were emptied.
pub fn drop_caches(image: &Path, contents: u64, worker: &Worker) -> Result<bool> {
    let all = drop_image(image)?;
    have_at_hand(contents, &[], worker)?;
    Ok(all)
}

/// Does the same, and waits up to 2.5 seconds until the machine does not give memory back for a while: short runs
/// are slower meanwhile.
pub fn drop_caches_between_reports(image: &Path, contents: u64, worker: &Worker) -> Result<bool> {
    let all = drop_image(image)?;
    have_at_hand(contents, &["--between-reports"], worker)?;
    Ok(all)
}

/// Has another process use the memory. After this one had done so, a listing by squashfuse_ll took 0.50 s, and 0.46 s
/// after a child had (medians of 44 runs of each in turn); a pause of 0.7 s before the run did not help.
fn have_at_hand(contents: u64, words: &[&str], worker: &Worker) -> Result<()> {
    let contents = contents.to_string();
    let mut command = worker.command(&["at-hand", "--contents", &contents]);
    process::output(command.args(words)).map(drop)
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
pub fn drop_all(worker: &Worker) -> Result<()> {
    empty()?;
    have_at_hand(u64::MAX, &[], worker)
}

fn empty() -> Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches")
}
