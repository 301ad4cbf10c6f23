//! The directory of the demo, and the caches that every measurement starts without.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forerun::build::is_in_memory;
use forerun_fuse::UmountOptions;
use rustix::fs::Advice;
use tempfile::TempDir;

use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::interrupt::OnInterrupt;
use crate::size;

/// The directory to mount on.
const MOUNTPOINT: &str = "mnt";
/// How often the removal after an interrupt is tried, and the pause between.
const REMOVALS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Time for interrupted work to close its files.
const CLOSING: Duration = Duration::from_millis(500);

/// The directory of all files, which are removed with it.
pub struct DemoDir {
    dir: TempDir,
    _guard: OnInterrupt,
}

impl DemoDir {
    /// Makes it in `parent`, or in the default place, which must have room for `needed` bytes.
    pub fn new(parent: Option<&Path>, needed: u64) -> Result<Self> {
        let parent = parent.map_or_else(default_dir, Path::to_path_buf);
        let failed = |error: io::Error| Failure::output(&error).of(parent.display());
        check_space(&parent, needed)?;
        let dir = tempfile::Builder::new()
            .prefix("forerun-demo-")
            .tempdir_in(&parent)
            .map_err(failed)?;
        let path = dir.path().to_path_buf();
        let guard = OnInterrupt::new(move || remove_interrupted(&path));
        Ok(Self { dir, _guard: guard })
    }

    /// Returns its path.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes an empty directory in it to mount on, where there is none yet.
    pub fn mountpoint(&self) -> Result<PathBuf> {
        let dir = self.path(MOUNTPOINT);
        fs::create_dir_all(&dir).map_err(|error| Failure::output(&error).of(dir.display()))?;
        Ok(dir)
    }
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Returns whether the work is to end.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Has the work end, and gives it the time to close its files. A process that dies with a file open in a
/// mount of its own would wait for itself.
pub fn interrupt() {
    if !INTERRUPTED.swap(true, Ordering::Relaxed) {
        std::thread::sleep(CLOSING);
    }
}

/// Removes the directory of work that was interrupted. That work may just be mounting an image or making
/// a file, so this tries again until the directory is gone.
fn remove_interrupted(dir: &Path) {
    let mountpoint = dir.join(MOUNTPOINT);
    let lazily = UmountOptions {
        lazy: true,
        force: false,
    };
    interrupt();
    for _ in 0..REMOVALS {
        let _ = fs::remove_dir_all(dir);
        if !dir.exists() {
            return;
        }
        if forerun_fuse::umount(&mountpoint, lazily).is_err() {
            let _ = forerun_kernel::umount(&mountpoint, true);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns `TMPDIR`, or `/var/tmp` where `TMPDIR` is in memory, since there would be no cold caches to
/// measure.
pub fn default_dir() -> PathBuf {
    let dir = std::env::temp_dir();
    if is_in_memory(&dir) && Path::new("/var/tmp").is_dir() {
        PathBuf::from("/var/tmp")
    } else {
        dir
    }
}

/// Fails early where the files will not fit.
fn check_space(dir: &Path, needed: u64) -> Result<()> {
    let stat = rustix::fs::statvfs(dir)
        .map_err(|error| Failure::output(&error.into()).of(dir.display()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free >= needed {
        return Ok(());
    }
    let message = format!("{} free, {} needed", size::human(free), size::human(needed));
    let failure = Failure::new(Exit::Output, "output", message).of(dir.display());
    Err(failure.hint("choose another place with --dir, or smaller files with --size-mb"))
}

/// Makes the next read of the file come from the disk. Returns whether all caches of the machine were
/// dropped, which takes root.
pub fn drop_caches(path: &Path) -> Result<bool> {
    let failed = |error: io::Error| Failure::source(&error).of(path.display());
    let file = File::open(path).map_err(failed)?;
    // Pages that are not written back yet would stay.
    file.sync_all().map_err(failed)?;
    let dropped = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
    dropped.map_err(|error| failed(error.into()))?;
    Ok(fs::write("/proc/sys/vm/drop_caches", "3").is_ok())
}
