//! Where trees are extracted to: an ext4 filesystem of its own, made anew for each run.
//!
//! In a filesystem that is reused, ext4 keeps away from inodes that were freed within the last
//! minutes and searches past all of them for every file made: after `rm -r` of the run before, that
//! search is most of what would be measured.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::process;

/// Room for the tree several times over; the file is sparse.
const LEN: u64 = 16 << 30;

/// An empty filesystem, unmounted and removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    image: PathBuf,
    dir: PathBuf,
}

impl Scratch {
    /// Makes and mounts one in `dir`. Needs root.
    pub fn new(dir: &Path) -> Result<Self> {
        let scratch = Self {
            image: dir.join("scratch.ext4"),
            dir: dir.join("scratch"),
        };
        File::create(&scratch.image)
            .and_then(|file| file.set_len(LEN))
            .with_context(|| scratch.image.display().to_string())?;
        fs::create_dir_all(&scratch.dir)?;
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1"]);
        process::output(mkfs.arg(&scratch.image))?;
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]);
        process::output(mount.arg(&scratch.image).arg(&scratch.dir))?;
        Ok(scratch)
    }

    /// Returns the filesystem's root.
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut umount = Command::new("umount");
        // Not mounted, where making it failed.
        let _nothing_more_to_do = process::collect(umount.arg(&self.dir));
        let _the_next_run_replaces_it = fs::remove_file(&self.image);
    }
}
